"""Compares `gpudoc doctor` with `python -m torch.utils.collect_env`: the time, and the number of facts.

Rounds are interleaved, so that a busy machine slows both; ratios are of medians.

    python benchmarks/doctor_speed.py [--rounds 7]     writes records/<date>-doctor-speed.md
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NOTHING = ("", "N/A", "Could not collect", "No CUDA", "None")
HEAVY = ("torch", "torch-", "torchgen", "functorch", "nvidia", "triton", "torchvision", "torchaudio")


def environment() -> dict[str, str]:
    variables = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "CONDA_PREFIX")}
    return {**variables, "PYTHONPATH": str(ROOT)}


def seconds(command: Sequence[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, capture_output=True, check=False, env=environment(), cwd=ROOT)
    return time.perf_counter() - began


def environment_without_torch(folder: Path) -> Path:
    """A virtual environment with everything that is installed here except torch and what comes with it."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    site = next((folder / "lib").glob("python*/site-packages"))
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        name = entry.name.lower()
        if not name.startswith(tuple(f"{heavy}-" for heavy in HEAVY)) and name not in HEAVY and name != "nvidia":
            (site / entry.name).symlink_to(entry)
    return folder / "bin" / "python"


def count_leaves(value: object) -> int:
    """Facts with a value; a list of packages, libraries or events counts as one."""
    if isinstance(value, Mapping):
        return 0 if set(value) == {"absent"} else sum(count_leaves(item) for item in value.values())
    if isinstance(value, list):
        return sum(map(count_leaves, value)) if value and isinstance(value[0], dict) and "name" not in value[0] else 1
    return 1


def facts_of_doctor() -> int:
    command = [sys.executable, "-m", "gpudoc", "doctor", "--json"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, env=environment(), cwd=ROOT)
    facts = json.loads(answer.stdout)["facts"]
    return sum(count_leaves(facts[section]) for section in facts if not section.startswith("probe_"))


def facts_of_collect_env() -> tuple[int, int]:
    """(fields with a value, lines of its output with a value, the processor's own lines among them)."""
    code = (
        "import json; from torch.utils.collect_env import get_env_info as g; "
        "print(json.dumps({k: str(v) for k, v in g()._asdict().items()}))"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment())
    fields = json.loads(answer.stdout.splitlines()[-1])
    known = [name for name, value in fields.items() if value not in NOTHING]
    text = subprocess.run(
        [sys.executable, "-m", "torch.utils.collect_env"], capture_output=True, text=True, check=True, env=environment()
    ).stdout
    lines = [line for line in text.splitlines() if ":" in line and not line.startswith("[")]
    return len(known), len([line for line in lines if line.split(":", 1)[1].strip() not in NOTHING])


def main() -> int:
    parser = argparse.ArgumentParser(description="gpudoc doctor beside collect_env")
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory(prefix="gpudoc-speed-") as folder:
        bare = str(environment_without_torch(Path(folder) / "bare"))
        commands = {
            "collect_env": [sys.executable, "-m", "torch.utils.collect_env"],
            "doctor": [sys.executable, "-m", "gpudoc", "doctor"],
            "doctor --quick": [sys.executable, "-m", "gpudoc", "doctor", "--quick"],
            "doctor, no torch installed": [bare, "-m", "gpudoc", "doctor"],
            "import torch": [sys.executable, "-c", "import torch"],
        }
        for command in commands.values():
            seconds(command)
        taken: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(rounds):
            for name, command in commands.items():
                taken[name].append(seconds(command))
    base = statistics.median(taken["collect_env"])
    ours, (fields, lines) = facts_of_doctor(), facts_of_collect_env()
    rows = [
        f"| {name} | {statistics.median(all_s):.2f} | {min(all_s):.2f} to {max(all_s):.2f} | "
        f"{statistics.median(all_s) / base:.2f} |"
        for name, all_s in taken.items()
    ]
    import torch

    head = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    model = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name"))
    today = datetime.date.today().isoformat()
    made = (
        f"{today}, commit {head.stdout.strip()}, {os.cpu_count()} CPUs {model.split(':', 1)[1].strip()}, "
        f"Python {platform.python_version()}, torch {torch.__version__}, {rounds} interleaved rounds after one to warm "
        f"up; load average at the end {os.getloadavg()[0]:.1f}. Made by `python benchmarks/doctor_speed.py`."
    )
    counted = (
        f"Facts with a value on this machine: doctor {ours}; collect_env {fields} fields, {lines} lines of text "
        "(those of lscpu included). A list of packages or libraries counts as one."
    )
    head_row = ["| command | median s | from, to | share of collect_env |", "|---|---|---|---|"]
    text = "\n".join(["# gpudoc doctor beside collect_env", "", made, "", *head_row, *rows, "", counted, ""])
    print(text)
    place = ROOT / "records" / f"{today}-doctor-speed.md"
    place.parent.mkdir(exist_ok=True)
    place.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
