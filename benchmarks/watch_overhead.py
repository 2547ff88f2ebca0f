"""How much a watched job slows down: pairs of the same job's speed, watched and not, taking turns.

    python benchmarks/watch_overhead.py [--pairs 10] [--seconds 60] [--record FILE]
                                        [--results FILE [--resume] [--budget SECONDS]]

Two cases: a job that leaves CPUs idle (one thread), and one that fills them all (as many loader workers as CPUs,
busy). Each pair measures one running job: `seconds` alone and `seconds` watched, the order changing from pair to pair,
so that slow drift of the machine falls on both; the cases take turns too. The result says how busy the machine
was. With --results every pair is kept as it ends, --resume goes on after them, and --budget makes slices.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys

from in_parts import add_options, open_parts

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "campaigns"))
from watch_scripts import CATALOGUE, ROOT, Job, typed

CASES = {"a core idle": "healthy_mlp", "all cores busy": "decode_augment"}


def watched_speed(job, seconds):
    command = [
        sys.executable,
        "-m",
        "gpudoc",
        "doctor",
        "--pid",
        str(job.process.pid),
        "--seconds",
        str(seconds),
        "--json",
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    watcher = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        return job.steps_per_s(seconds)
    finally:
        watcher.wait()


def one_pair(script, seconds, watched_first):
    """Steps per second of one running job: alone, watched."""
    job = Job(script)
    try:
        if not job.wait_until_it_trains(False):
            raise SystemExit(f"{script.name} did not start")
        if watched_first:
            watched, alone = watched_speed(job, seconds), job.steps_per_s(seconds)
        else:
            alone, watched = job.steps_per_s(seconds), watched_speed(job, seconds)
    finally:
        job.end()
    return alone, watched


def table(rows):
    lines = ["| case | script | pairs | median slow-down | all pairs |", "|---|---|---|---|---|"]
    for case, name in CASES.items():
        found = sorted(100 * (1 - r["watched"] / r["alone"]) for r in rows if r["case"] == case)
        if found:
            every = ", ".join(f"{f:+.1f} %" for f in found)
            lines.append(f"| {case} | {name} | {len(found)} | {statistics.median(found):.1f} % | {every} |")
    return lines


def write_record(place, parts, options):
    how = f"Command: `python benchmarks/watch_overhead.py {typed()}`; pairs of {options.seconds:g} s."
    lines = ["# What watching costs the watched job", "", f"{parts.about()}.", how, "", *table(parts.rows)]
    place.write_text("\n".join(lines) + "\n")


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--pairs", type=int, default=10)
    options.add_argument("--seconds", type=float, default=60.0)
    add_options(options)
    options = options.parse_args()
    parts = open_parts(options)
    for pair in range(options.pairs):
        for case, name in CASES.items():
            if parts.time_is_up() or any((r["case"], r["pair"]) == (case, pair) for r in parts.rows):
                continue
            script = next(s for s in CATALOGUE if s.name == name)
            alone, watched = one_pair(script, options.seconds, bool(pair % 2))
            parts.add(case=case, pair=pair, alone=alone, watched=watched)
            print(f"  {name} pair {pair + 1}: {alone:.1f} steps/s alone, {watched:.1f} watched", flush=True)
            if options.record:
                write_record(options.record, parts, options)
    print("\n".join(table(parts.rows)))
    left = len(CASES) * options.pairs - len(parts.rows)
    if left > 0:
        print(f"time is up; {left} pairs are left for --resume")


if __name__ == "__main__":
    main()
