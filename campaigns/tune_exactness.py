"""How exact the largest batch is: three models under six limits, against truth by bisection in fresh processes.

    python campaigns/tune_exactness.py table [--only mlp,conv,transformer] [--limits 384,512,...]
    python campaigns/tune_exactness.py cap          # a true limit between 4096 and 7781
    python campaigns/tune_exactness.py after        # gpudoc train for 500 steps at what was found, under the limit
    python campaigns/tune_exactness.py plan         # the search with the plan's first probe beside the one without
    python campaigns/tune_exactness.py record       # the table as Markdown, under records/

Every answer is appended to records/tune_exactness.jsonl at once; what is there already is not run again.
Truth: the largest batch of which the first steps fit, by bisection in fresh processes; then every batch within 8 of it.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))
from in_parts import largest_of
from tune_workloads import KINDS, write_workload

from gpudoc.tune.search.foresight import foresee
from gpudoc.tune.search.journal import Journal
from gpudoc.tune.search.largest import find_largest, settle_largest
from gpudoc.tune.search.runner import FIT_STEPS, WorkloadRunner
from gpudoc.tune.search.session import Session
from gpudoc.tune.search.sizing import STEADY_STEPS
from gpudoc.tune.trial.launcher import Launcher, Where
from gpudoc.tune.trial.messages import TrialRequest, Variant
from gpudoc.units import MIB

RECORDS = Path(__file__).resolve().parents[1] / "records"
ROWS = RECORDS / "tune_exactness.jsonl"
EXACT = Variant(allocator="exact")
LIMITS = (352, 384, 416, 448, 480, 512)
AROUND = 8


class Said:
    """Keeps what the search says for the record; draws nothing."""

    def say(self, text: str) -> None:
        print(f"    {text}", flush=True)

    def advance(self, done: float, total: float, text: str) -> None:
        pass


def rows() -> list[dict]:
    """Every answer so far."""
    if not ROWS.exists():
        return []
    return [json.loads(line) for line in ROWS.read_text().splitlines()]


def keep(**row) -> None:
    """Append one answer."""
    RECORDS.mkdir(exist_ok=True)
    at = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    row = {"at": at, "commit": os.environ.get("BENCHMARKED_COMMIT") or commit(), **row}
    with ROWS.open("a") as stream:
        stream.write(json.dumps(row) + "\n")
    print(row, flush=True)


def commit() -> str:
    """The commit of the tree that is measured."""
    here = Path(__file__).parent
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False, cwd=here
    )
    return done.stdout.strip()


def known(what: str, kind: str, limit_mib: int) -> dict | None:
    """The answer of that kind, if it is there."""
    found = same(what, kind, limit_mib)
    return found[-1] if found else None


def same(what: str, kind: str, limit_mib: int) -> list[dict]:
    """All answers of that kind."""
    return [r for r in rows() if (r["what"], r["model"], r["limit_mib"]) == (what, kind, limit_mib)]


def search(source: str, limit_bytes: int, foreseen: list | None = None, settle: bool = False) -> tuple[object, float]:
    """Our search with start-up, and its wall time; the steady steps, which run once on the chosen batch, come after it.

    With a list, the plan's line gives the first probe and is appended to it.
    """
    start = time.perf_counter()
    with Launcher(source) as launcher:
        count = launcher.inspect(Where(device="cpu", limit_bytes=None), 1).num_samples
        session = Session(
            runner=WorkloadRunner(launcher=launcher, where=Where(device="cpu", limit_bytes=limit_bytes, cap=count)),
            journal=Journal(None),
            progress=Said(),
            budget_s=1e9,
            share_s=1e9,
            variant=EXACT,
        )
        expected = None if foreseen is None else foresee(session, cap=count)
        if foreseen is not None and expected is not None:
            foreseen.append(expected)
        found = find_largest(session, limit_bytes=limit_bytes, cap=count, expected=expected)
        wall = time.perf_counter() - start
        if settle:
            found = settle_largest(session, found, steps=STEADY_STEPS)
        session.release()
    return found, wall


def truth(source: str, limit_bytes: int, guess: int) -> tuple[int, dict[int, bool]]:
    """Bisection from scratch in fresh processes, bracketed without looking at our answer's neighbours; then +-8."""
    with Launcher(source) as launcher:
        where = Where(device="cpu", limit_bytes=limit_bytes)

        def fits(batch: int) -> bool:
            return launcher.run(TrialRequest(kind="fit", batches=(batch,), variant=EXACT, steps=FIT_STEPS), where).fits

        return largest_of(fits, max(1, guess * 3 // 4), guess * 5 // 4 + 2, AROUND)


def table(kinds: list[str], limits: list[int], with_truth: bool) -> None:
    """Search and truth for every cell that is not there yet."""
    for kind in kinds:
        with tempfile.TemporaryDirectory() as folder:
            source = str(write_workload(Path(folder), kind))
            for limit_mib in limits:
                ours = known("search", kind, limit_mib)
                if ours is None:
                    found, wall = search(source, limit_mib * MIB, [], settle=True)
                    keep(
                        what="search",
                        model=kind,
                        limit_mib=limit_mib,
                        batch=found.batch,
                        fails_at=found.fails_at,
                        launches=found.launches,
                        ooms=found.num_oom,
                        predicted=found.predicted,
                        settled=found.settled,
                        notes=found.notes,
                        bytes_per_sample=found.line.bytes_per_sample,
                        wall_s=round(wall, 2),
                    )
                    ours = known("search", kind, limit_mib)
                if with_truth and known("truth", kind, limit_mib) is None:
                    start = time.perf_counter()
                    largest, answers = truth(source, limit_mib * MIB, ours["batch"])
                    around = {b: ok for b, ok in sorted(answers.items()) if abs(b - largest) <= AROUND}
                    holes = sum(1 for b, ok in around.items() if b < largest and not ok)
                    keep(
                        what="truth",
                        model=kind,
                        limit_mib=limit_mib,
                        batch=largest,
                        probes=len(answers),
                        holes=holes,
                        around="".join("+" if ok else "-" for ok in around.values()),
                        wall_s=round(time.perf_counter() - start, 2),
                    )


def plan(kinds: list[str], limits: list[int]) -> None:
    """Both ways one after the other on every cell: launches, failures and wall time, the trace counted as time."""
    for kind in kinds:
        with tempfile.TemporaryDirectory() as folder:
            source = str(write_workload(Path(folder), kind))
            for limit_mib in limits:
                if known("plan", kind, limit_mib):
                    continue
                foreseen: list = []
                without, without_s = search(source, limit_mib * MIB)
                with_, with_s = search(source, limit_mib * MIB, foreseen)
                keep(
                    what="plan",
                    model=kind,
                    limit_mib=limit_mib,
                    foreseen=foreseen[0].batch if foreseen else None,
                    foreseen_bytes_per_sample=round(foreseen[0].bytes_per_sample) if foreseen else None,
                    measured_bytes_per_sample=round(without.line.bytes_per_sample),
                    without={"batch": without.batch, "launches": without.launches, "ooms": without.num_oom},
                    with_plan={"batch": with_.batch, "launches": with_.launches, "ooms": with_.num_oom},
                    without_s=round(without_s, 2),
                    with_s=round(with_s, 2),
                )


def cap() -> None:
    """A small model whose true limit lies between 4096 and 7781, where doubling to 8192 was once never checked."""
    with tempfile.TemporaryDirectory() as folder:
        source = str(write_workload(Path(folder), "mlp"))
        for limit_mib in (448, 560):
            found, wall = search(source, limit_mib * MIB)
            with Launcher(source) as launcher:
                where = Where(device="cpu", limit_bytes=limit_mib * MIB)
                answers = {
                    batch: launcher.run(
                        TrialRequest(kind="fit", batches=(batch,), variant=EXACT, steps=FIT_STEPS), where
                    ).end.value
                    for batch in (found.batch, 7782, 8192)
                }
            keep(what="cap", model="mlp", limit_mib=limit_mib, batch=found.batch, runs=answers, wall_s=round(wall, 2))


def after(kinds: list[str], limits: list[int], steps: int) -> None:
    """`gpudoc train` for `steps` steps at the batch that was found, under the same limit, with no rescue allowed."""
    for kind in kinds:
        for limit_mib in limits:
            ours = known("search", kind, limit_mib)
            if ours is None or any(row["of"] >= steps for row in same("after", kind, limit_mib)):
                continue
            start = time.perf_counter()
            with tempfile.TemporaryDirectory() as folder:
                write_workload(Path(folder), kind)
                done = train(folder, kind, limit_mib, ours["batch"], steps)
                summary = Path(folder) / "run" / "summary.json"
                ran = json.loads(summary.read_text())["steps"] if summary.exists() else 0
            keep(
                what="after",
                model=kind,
                limit_mib=limit_mib,
                batch=ours["batch"],
                steps=ran,
                of=steps,
                exit_code=done.returncode,
                said="" if done.returncode == 0 else done.stderr.strip()[-200:],
                wall_s=round(time.perf_counter() - start, 1),
            )


def train(folder: str, kind: str, limit_mib: int, batch: int, steps: int) -> subprocess.CompletedProcess:
    """The training run, with five checkpoints on its way."""
    settings = [f"micro_batch={batch}", f"global_batch={batch}", "allocator=exact", "rescue=false"]
    settings += [f"checkpoint_every={max(1, steps // 5)}", f"log_every={max(1, steps // 10)}"]
    line = [sys.executable, "-m", "gpudoc", "train", "--model", f"{kind}.yaml", "--profile", "off", "--device", "cpu"]
    line += ["--memory-limit", f"{limit_mib}MiB", "--steps", str(steps), "--run-dir", "run", "--no-preflight"]
    line += [word for setting in settings for word in ("--set", setting)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])}
    return subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def main() -> int:
    """Run one part; returns 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["table", "cap", "after", "plan", "record"])
    parser.add_argument("--only", default=",".join(KINDS))
    parser.add_argument("--limits", default=",".join(map(str, LIMITS)))
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--no-truth", action="store_true", help="table: search only")
    options = parser.parse_args()
    kinds, limits = options.only.split(","), [int(part) for part in options.limits.split(",")]
    match options.part:
        case "table":
            table(kinds, limits, with_truth=not options.no_truth)
        case "cap":
            cap()
        case "after":
            after(kinds, limits, options.steps)
        case "plan":
            plan(kinds, limits)
        case _:
            write_record()
    return 0


def write_record() -> None:
    """The table as Markdown with machine, versions and commit."""
    import torch

    cpu = next((r for r in Path("/proc/cpuinfo").read_text().splitlines() if r.startswith("model name")), "")
    versions = f"torch {torch.__version__}, {torch.get_num_threads()} threads, Python {platform.python_version()}"
    machine = f"CPU{cpu.partition(':')[2]}, Linux {platform.release().partition('-')[0]}"
    columns = [
        "model",
        "limit_MiB",
        "truth",
        "found",
        "fails_at",
        "launches",
        "OOMs",
        "predicted",
        "s",
        "around_truth",
        "commit",
    ]
    lines = [
        "# Exactness of the largest batch",
        "",
        f"{datetime.date.today()}, written at commit {commit()}, {versions}, {machine}.",
        "Limits are RLIMIT_DATA of a fresh process; truth by bisection in fresh processes and every batch within 8.",
        "",
        "| " + " | ".join(columns) + " |",
        "|" + "---|" * len(columns),
    ]
    cells = [(r["model"], r["limit_mib"]) for r in rows() if r["what"] == "search"]
    exact, ratios, launches, ooms = 0, [], [], []
    for kind, limit_mib in dict.fromkeys(cells):
        ours, true = known("search", kind, limit_mib), known("truth", kind, limit_mib)
        if true is not None:
            tolerance = max(1, int(2 * MIB / ours["bytes_per_sample"]))
            exact += abs(ours["batch"] - true["batch"]) <= tolerance
            ratios.append(ours["batch"] / true["batch"])
        launches.append(ours["launches"])
        ooms.append(ours["ooms"])
        lines.append(
            f"| {kind} | {limit_mib} | {true['batch'] if true else ''} | {ours['batch']} | {ours['fails_at']} | "
            f"{ours['launches']} | {ours['ooms']} | {ours['predicted']} | {ours['wall_s']} | "
            f"{'`' + true['around'] + '`' if true else 'not bisected'} | {ours['commit']} |"
        )
    if ratios:
        within = f"Equal within max(1, 2 MiB / bytes per sample): {exact} of {len(ratios)}; found / truth "
        lines += ["", f"{within}{min(ratios):.4f} to {max(ratios):.4f}."]
    if launches:
        middle, failed = sorted(launches), sorted(ooms)
        lines += [
            "",
            (
                f"Launches median {middle[len(middle) // 2]}, most {middle[-1]}; out of memory median "
                f"{failed[len(failed) // 2]}, most {failed[-1]}."
            ),
        ]
    for what, title in (
        ("peer", "Lightning binsearch beside"),
        ("plan", "With and without the plan's first probe"),
        ("cap", "Cap"),
        ("after", "Steps that follow"),
    ):
        found = [r for r in rows() if r["what"] == what]
        if found:
            lines += [
                "",
                f"## {title}",
                "",
                *[f"- `{json.dumps({k: v for k, v in r.items() if k != 'what'})}`" for r in found],
            ]
    path = RECORDS / f"{datetime.date.today()}-tune-exactness.md"
    path.write_text("\n".join(lines) + "\n")
    print(path)


if __name__ == "__main__":
    sys.exit(main())
