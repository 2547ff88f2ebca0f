"""Checks whether two runs of `gpudoc bench --quick` agree: each run with the next one, row by row.

    python benchmarks/bench_agree.py [--times 6] [--pause 30] [--beside 1] [--full] [--tree DIR] [--record FILE]

Two rows agree if their stated intervals touch. For each pair it prints how many rows agree and which do not, the
median width of an interval as a share of its value, the fewest samples of a row, and how long a run took. `--beside N`
keeps N busy loops running; `--tree` measures another checkout, such as an earlier version. Exit code 1 if fewer rows
agree than should (95 % alone, 90 % beside a loop) or a row has fewer than 7 samples.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import itertools
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parents[1]
LEAST_SAMPLES = 7
LEAST_AGREE, LEAST_AGREE_BESIDE = 0.95, 0.90


@contextlib.contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """This many processes that compute all the time; they are ended afterwards."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def measure(tree: pathlib.Path, full: bool) -> dict:
    """One run's document, with its wall time as 'wall_s'."""
    command = [sys.executable, "-m", "gpudoc", "bench", "--device", "cpu", "--json", *([] if full else ["--quick"])]
    began = time.monotonic()
    done = subprocess.run(
        command, cwd=tree, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(tree)}
    )
    document = json.loads(done.stdout)
    return {**document, "wall_s": time.monotonic() - began, "load": os.getloadavg()[0]}


def key(row: dict) -> str:
    """The name of a row."""
    return " ".join([row["name"], *(f"{name}={value}" for name, value in sorted(row["parameters"].items()))])


def rows_of(document: dict) -> dict[str, dict]:
    """The rows that have a value, by name."""
    return {key(row): row for row in document["measurements"] if row["value"]}


def compare(old: dict, new: dict) -> dict:
    """One pair of runs: how many rows both have, which disagree and by how much, and the rows that only one has."""
    before, now = rows_of(old), rows_of(new)
    both = [name for name in now if name in before]
    apart = {
        name: round(now[name]["value"] / before[name]["value"], 3)
        for name in both
        if now[name]["low"] > before[name]["high"] or now[name]["high"] < before[name]["low"]
    }
    return {"rows": len(both), "apart": apart, "only_one": sorted(set(before) ^ set(now))}


def describe(document: dict) -> dict:
    """One run: its rows, the median width of their intervals, the fewest samples of one, and its seconds."""
    rows = rows_of(document)
    widths = [(row["high"] - row["low"]) / row["value"] for row in rows.values()]
    return {
        "rows": len(rows),
        "width": round(statistics.median(widths), 4),
        "fewest_samples": min(sum(map(len, row["samples"])) for row in rows.values()),
        "wall_s": round(document["wall_s"], 1),
        "load": round(document["load"], 2),
    }


def main() -> int:
    """Run as often as asked, compare each run with the next, print and keep the results."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--times", type=int, default=6)
    options.add_argument("--pause", type=float, default=30.0)
    options.add_argument("--beside", type=int, default=0)
    options.add_argument("--full", action="store_true")
    options.add_argument("--tree", type=pathlib.Path, default=ROOT)
    options.add_argument("--record", type=pathlib.Path)
    asked = options.parse_args()
    documents = []
    with busy_loops(asked.beside):
        for number in range(asked.times):
            if number:
                time.sleep(asked.pause)
            documents.append(measure(asked.tree, asked.full))
            print(json.dumps(describe(documents[-1])), flush=True)
            if number:
                print(json.dumps(compare(*documents[-2:])), flush=True)
    pairs = [compare(old, new) for old, new in itertools.pairwise(documents)]
    runs = [describe(document) for document in documents]
    total = sum(pair["rows"] for pair in pairs)
    agree = 1 - sum(len(pair["apart"]) for pair in pairs) / max(1, total)
    record = {
        "date": datetime.date.today().isoformat(),
        "cpu": documents[0]["environment"]["cpu"],
        "cpus": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "bench_version": documents[0]["environment"]["bench_version"],
        "mode": documents[0]["environment"]["mode"],
        "pause_s": asked.pause,
        "busy_loops": asked.beside,
        "rows_compared": total,
        "agree": round(agree, 4),
        "median_width": statistics.median(run["width"] for run in runs),
        "median_wall_s": statistics.median(run["wall_s"] for run in runs),
        "fewest_samples": min(run["fewest_samples"] for run in runs),
        "runs": runs,
        "pairs": pairs,
    }
    print(json.dumps({name: record[name] for name in record if name not in ("runs", "pairs")}))
    if asked.record:
        asked.record.write_text(json.dumps(record, indent=1) + "\n")
    least = LEAST_AGREE_BESIDE if asked.beside else LEAST_AGREE
    return int(agree < least or record["fewest_samples"] < LEAST_SAMPLES)


if __name__ == "__main__":
    sys.exit(main())
