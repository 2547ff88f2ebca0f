"""The plan: which steps a machine gets, in which order, how long each may take, and how its end is judged."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from benchmarks.gpu_check.deadline import LEFT_OUT
from benchmarks.gpu_check.model import Ended, Result, Step, error_line

ROOT = Path(__file__).resolve().parents[2]
CHECKS = "benchmarks.gpu_check.checks"
# (file, seconds): what must hold on one card, the quickest first; who takes longer leaves tests out and says so
TESTS = (
    ("test_facts_gpu", 45), ("test_bench_cases", 50), ("test_bench_run", 60), ("test_plan_peaks", 60),
    ("test_train_gpu", 60), ("test_levers", 150), ("test_tune_search", 160), ("test_watch", 180),
)  # fmt: skip
RANKED_TESTS = (("test_ranks", 200), ("test_tune_ranks", 240))


@dataclass(frozen=True, kw_only=True)
class Place:
    """What decides about steps: how many GPUs torch sees, and what is around them."""

    num_gpus: int
    is_wsl: bool = False
    has_mig: bool = False
    may_change: bool = False
    can_compile: bool = False


def by_status(ended: Ended) -> Result:
    """The exit status alone."""
    if ended.status == 0:
        return Result()
    return Result(failures=[f"exit status {ended.status}: {error_line(ended.errors) or 'it says nothing'}"])


def by_result(ended: Ended) -> Result:
    """What a check printed as its last line; ValueError where it ended otherwise."""
    if ended.status:
        raise ValueError("it did not end well")
    return Result.from_output(ended.output)


def by_findings(ended: Ended) -> Result:
    """What doctor found broken, in its own words."""
    document = json.loads(ended.output)
    broken = [one["title"] for one in document["findings"] if one["severity"] == "broken"]
    names = ", ".join(sorted(one["id"] for one in document["findings"])) or "none"
    return Result(failures=[f"doctor: {title}" for title in broken], facts={"findings": names})


def by_verdict(ended: Ended) -> Result:
    """What `bench --across` found broken, and why there is no verdict where there is none."""
    verdict = json.loads(ended.output)["verdict"]
    result = Result(failures=[one["title"] for one in verdict["findings"] if one["severity"] == "broken"])
    if verdict["word"] == "unknown":
        why = "; ".join(dict.fromkeys(f"{one['what']}: {one['because']}" for one in verdict["unjudged"][:3]))
        result.failures.append(f"bench --across has no verdict{f': {why}' if why else ''}")
    result.facts["verdict"] = verdict["word"]
    return result


def by_junit(report: Path, ended: Ended) -> Result:
    """Which tests failed, how many ran, and which were left out, from pytest's own report."""
    if not report.exists():
        return Result(failures=[f"pytest wrote no report: {error_line(ended.errors or ended.output)}"])
    result, ran, out = Result(), 0, 0
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        skipped = case.find("skipped")
        if skipped is not None:
            out += LEFT_OUT in f"{skipped.get('message')}{skipped.text}"
            continue
        ran += 1
        wrong = case.find("failure") if case.find("error") is None else case.find("error")
        if wrong is not None:
            words = (wrong.get("message") or "").strip().splitlines() or ["no message"]
            result.failures.append(f"{case.get('name')}: {words[0][:300]}")
    result.facts["tests run"] = ran
    if out:
        result.facts["tests left out for time"] = out
    if not ran and not out:
        result.facts["tests"] = "none of this file can run on this machine"
    return result


def check(name: str, limit_s: float, *arguments: str, absent: str = "", **more: object) -> Step:
    """A step that is one of `checks/`."""
    command = (sys.executable, "-m", f"{CHECKS}.{name}", *arguments)
    return replace(
        Step(name=name, command=command, limit_s=limit_s, judge=by_result, absent=absent),
        **more,  # type: ignore[arg-type]
    )


def file_of_tests(folder: Path, name: str, limit_s: float, absent: str = "") -> Step:
    """A step that is one file of tests/gpu."""
    report = folder / f"{name}.xml"
    options = ("-q", "-m", "gpu", "-p", "benchmarks.gpu_check.deadline", f"--junitxml={report}", "-o", "addopts=")
    path = ROOT / "tests" / "gpu" / f"{name}.py"
    return Step(
        name=f"tests of {name.removeprefix('test_')}",
        command=(sys.executable, "-m", "pytest", *options, str(path)),
        limit_s=limit_s,
        judge=partial(by_junit, report),
        absent=absent or ("" if path.exists() else f"{path.name} is not there"),
        environment={"GPU_CHECK_SECONDS": str(limit_s)},
    )


def doctor() -> Step:
    """What doctor says before anything of torch has used a GPU."""
    command = (sys.executable, "-m", "gpudoc", "doctor", "--json")
    return Step(name="doctor", command=command, limit_s=30, judge=by_findings, is_repeated=True, keeps_output=True)


def quick_plan() -> Iterator[Step]:
    """What five minutes can show on one GPU."""
    yield doctor()
    yield check("machine", 30)
    yield check("constants", 45, "--quick")
    yield check("ceilings", 50)
    yield check("timing", 45)
    yield check("memory", 70, "--quick")


def whole_plan(place: Place, folder: Path) -> Iterator[Step]:
    """Everything that this machine can show; the most telling steps come first."""
    yield doctor()
    yield check("machine", 30)
    yield check("constants", 70)
    yield check("ceilings", 50, is_repeated=True)
    yield check("timing", 120, *(("--compile",) if place.can_compile else ()))
    yield check("memory", 180)
    yield check("faults", 90)
    yield Step(
        name="methods of others",
        command=(sys.executable, "-m", "benchmarks.bench_gpu"),
        limit_s=75,
        judge=by_result,
    )
    yield from (file_of_tests(folder, name, limit_s) for name, limit_s in TESTS)
    yield from several_gpus(place, folder)
    yield from places(place, folder)
    yield from changed(place)


def several_gpus(place: Place, folder: Path) -> Iterator[Step]:
    """What takes two GPUs: our trainer under torchrun, with and without peer access, and the tests of ranks."""
    absent = "" if place.num_gpus > 1 else "needs two GPUs"
    yield check("ranks", 180, absent=absent)
    without = {"NCCL_P2P_DISABLE": "1"}
    yield replace(check("ranks", 180, absent=absent, environment=without), name="ranks without peer access")
    line = (sys.executable, "-m", "gpudoc", "bench", "--across", "--quick", "--json")
    yield Step(name="all GPUs", command=line, limit_s=300, judge=by_verdict, absent=absent)
    yield from (file_of_tests(folder, name, limit_s, absent) for name, limit_s in RANKED_TESTS)


def places(place: Place, folder: Path) -> Iterator[Step]:
    """What only some places have: WSL's driver, a slice of a card, a scheduler."""
    yield check("spill", 60, absent="" if place.is_wsl else "this is not WSL")
    line = (
        sys.executable,
        "-m",
        "gpudoc",
        "train",
        "--model",
        "quickstart",
        "--profile",
        "off",
        "--steps",
        "5",
        "--plain",
        "--device",
        "cuda",
    )
    mig = "" if place.has_mig else "no GPU here is in MIG mode"
    command = (*line, "--run-dir", str(folder / "mig"))
    yield Step(name="a MIG instance", command=command, limit_s=60, judge=by_status, absent=mig)
    slurm = "" if os.environ.get("SLURM_JOB_ID") and shutil.which("srun") else "this is not a SLURM job"
    srun = ("srun", "--overlap", "--ntasks=1", "--gpus-per-task=1", *line, "--run-dir", str(folder / "slurm"))
    yield Step(name="a SLURM task", command=srun, limit_s=120, judge=by_status, absent=slurm)


def changed(place: Place) -> Iterator[Step]:
    """With limits of the card lowered, which are put back whatever happens."""
    absent = ""
    if not place.may_change:
        absent = "changes the card's limits; asked for with --change-limits"
    elif shutil.which("nvidia-smi") is None:
        absent = "nvidia-smi is not installed here"
    watts = default_power_w() if not absent else ""
    back = {"power": ("nvidia-smi", "-i", "0", "-pl", watts), "clocks": ("nvidia-smi", "-i", "0", "-rgc")}
    for what, undo in back.items():
        step = check("limits", 60, what, absent=absent, undo=(undo,))
        yield replace(step, name=f"lowered {what}")


def default_power_w() -> str:
    """The power limit to go back to: the one that is set now."""
    query = ("nvidia-smi", "-i", "0", "--query-gpu=power.limit", "--format=csv,noheader,nounits")
    return subprocess.run(query, capture_output=True, text=True, check=False, timeout=30).stdout.strip()


def stretched(steps: Iterator[Step], factor: float) -> Iterator[Step]:
    """The same steps with limits that fit into another total."""
    for step in steps:
        limit_s = step.limit_s * factor
        told = {"GPU_CHECK_SECONDS": str(limit_s)} if "GPU_CHECK_SECONDS" in step.environment else {}
        yield replace(step, limit_s=limit_s, environment={**step.environment, **told})
