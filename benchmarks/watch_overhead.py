"""How much a watched job slows down: pairs of the same job's speed, watched and not, taking turns.

    python benchmarks/watch_overhead.py [--pairs 10] [--seconds 60] [--record FILE]

Two cases: a job that leaves CPUs idle (one thread), and one that fills them all (as many loader workers as CPUs, busy).
Each pair measures one running job: `seconds` alone and `seconds` watched, the order changing from pair to pair, so that
slow drift of the machine falls on both. What other programs do on the machine is told with the result.
"""

import argparse
import datetime
import os
import pathlib
import statistics
import subprocess
import sys

from watch_scripts import CATALOGUE, ROOT, Job, machine, typed

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


def slow_downs(name, pairs, seconds):
    script = next(s for s in CATALOGUE if s.name == name)
    job = Job(script)
    found = []
    try:
        job.wait_until_it_trains(False)
        for pair in range(pairs):
            if pair % 2:
                watched, alone = watched_speed(job, seconds), job.steps_per_s(seconds)
            else:
                alone, watched = job.steps_per_s(seconds), watched_speed(job, seconds)
            found.append(1 - watched / alone)
            print(f"  {name} pair {pair + 1}: {alone:.1f} steps/s alone, {watched:.1f} watched", flush=True)
    finally:
        job.end()
    return found


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--pairs", type=int, default=10)
    options.add_argument("--seconds", type=float, default=60.0)
    options.add_argument("--record", type=pathlib.Path)
    options = options.parse_args()
    about = machine()
    lines = ["| case | script | median slow-down | all pairs |", "|---|---|---|---|"]
    for case, name in CASES.items():
        found = slow_downs(name, options.pairs, options.seconds)
        every = ", ".join(f"{100 * f:+.1f} %" for f in sorted(found))
        lines.append(f"| {case} | {name} | {100 * statistics.median(found):.1f} % | {every} |")
        print(lines[-1], flush=True)
    if options.record:
        date = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
        title = "# What watching costs the watched job"
        command = "python benchmarks/watch_overhead.py " + typed()
        about = f"{date}; {about}; load at the end {os.getloadavg()[0]:.1f}."
        how = f"Command: `{command}`; {options.pairs} pairs of {options.seconds:g} s each."
        body = [title, "", about, how, "", *lines]
        options.record.write_text("\n".join(body) + "\n")


if __name__ == "__main__":
    main()
