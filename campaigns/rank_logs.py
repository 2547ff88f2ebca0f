"""Which rank failed first, on planted cascades; and the time and memory that a folder of many logs takes.

    python campaigns/rank_logs.py accuracy [--seeds N] [--misses]
    python campaigns/rank_logs.py cost [--files 1024] [--mib 1]

Accuracy: every fault in every style and size, judged through the door that `gpudoc doctor` uses. Right are the rank
and the first cause. Cost: a folder with a log of ordinary lines for each rank, judged by a process of its own.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

from gpudoc.doctor.examine import Request, examine  # noqa: E402
from tests.fakes.rank_logs import FAULTS, SIZES, STYLES, Planted, apart, plant  # noqa: E402


def judge(job: Planted) -> tuple[bool, bool, str]:
    """Whether the rank and the cause are right, and what was said."""
    with tempfile.TemporaryDirectory() as folder:
        report = examine(Request(sources=(str(job.write(Path(folder))),)))
    found = report.findings[0].id if report.findings else "-"
    if report.job is None:
        return False, found in job.fault.causes, f"no job, {found}"
    end = report.job.judged
    said = f"rank {end.rank}, {end.kind}, {end.order}, {found}, {end.text[:60]!r}"
    return end.rank == job.rank, found in job.fault.causes, said


def measure_accuracy(seeds: int, show_misses: bool) -> None:
    rows: Counter[tuple[str, str, bool]] = Counter()
    total: Counter[str] = Counter()
    for seed in range(seeds):
        for fault in FAULTS:
            for style in STYLES:
                for size in SIZES:
                    job = plant(fault, style, size, seed)
                    is_rank, is_cause, said = judge(job)
                    both = is_rank and is_cause
                    total.update({"cases": 1, "rank": is_rank, "cause": is_cause, "both": both})
                    for group in (fault.name, style.__name__, f"{size} ranks"):
                        rows[group, "both", both] += 1
                    if show_misses and not both:
                        print(
                            f"miss: {fault.name} {style.__name__} {size}: rank {job.rank} planted; {said}", flush=True
                        )
    for group in dict.fromkeys(group for group, _, _ in rows):
        right, wrong = rows[group, "both", True], rows[group, "both", False]
        print(f"{group:16} {right:4} of {right + wrong}")
    count = total["cases"]
    print(f"cases {count}: " + ", ".join(f"{what} {total[what] / count:.1%}" for what in ("rank", "cause", "both")))


def measure_cost(num_files: int, mib: float) -> None:
    job = plant(FAULTS[0], apart, num_files)
    with tempfile.TemporaryDirectory() as folder:
        place = job.write(Path(folder))
        fill(place, int(mib * (1 << 20)))
        size = sum(path.stat().st_size for path in place.rglob("*.log"))
        began = time.perf_counter()
        watched = [sys.executable, "-c", _CHILD, str(place)]
        told = subprocess.run(
            watched, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)}
        )
        wall = time.perf_counter() - began
    print(f"{num_files} files, {size / (1 << 20):.0f} MiB: {wall:.1f} s from start to end; planted: rank {job.rank}")
    print(told.stdout[-1500:], told.stderr[-1500:])


_CHILD = """
import contextlib, io, resource, sys
from gpudoc.__main__ import main
sys.argv = ["gpudoc", "doctor", sys.argv[1]]
try:
    main()
except SystemExit:
    pass
used = resource.getrusage(resource.RUSAGE_SELF)
print(f"peak {used.ru_maxrss / 1024:.0f} MiB, CPU {used.ru_utime + used.ru_stime:.1f} s")
"""


def fill(folder: Path, size: int) -> None:
    """Ordinary lines before the last ones of each log, until it is that large."""
    for path in folder.rglob("rank_*.log"):
        text = path.read_text("utf-8")
        line = "2026-11-25 08:59:{:02d},{:03d} INFO data shard {} of 4096 read, 812 samples, 0 skipped, queue 37\n"
        count = max(0, size - len(text)) // len(line.format(0, 0, 1000))
        path.write_text("".join(line.format(n % 60, n % 1000, n) for n in range(count)) + text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("accuracy", "cost"))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--misses", action="store_true")
    parser.add_argument("--files", type=int, default=1024)
    parser.add_argument("--mib", type=float, default=1.0)
    options = parser.parse_args()
    if options.what == "accuracy":
        measure_accuracy(options.seeds, options.misses)
    else:
        measure_cost(options.files, options.mib)


if __name__ == "__main__":
    main()
