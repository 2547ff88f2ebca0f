"""Results of a long benchmark, kept row by row: a run that is cut off loses one row, and the next goes on after it."""

import datetime
import json
import os
import pathlib
import platform
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]


def largest_of(fits, low, high, around):
    """(the largest batch that fits, every answer): a bisection between two guesses, then all batches around its end.

    `fits` says whether one batch fits, in a separate process; no batch is tried twice.
    """
    answers = {}

    def ask(batch):
        if batch not in answers:
            answers[batch] = fits(batch)
        return answers[batch]

    while low > 1 and not ask(low):
        low //= 2
    while ask(high):
        high *= 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if ask(middle) else (low, middle)
    for batch in range(max(1, low - around), low + around + 1):
        ask(batch)
    return max(batch for batch, is_fitting in answers.items() if is_fitting), answers


class Parts:
    """The rows of one results file; without a file, they last as long as the run."""

    def __init__(self, place, budget_s=None):
        self.place = place
        self.rows = []
        self._ends = None if budget_s is None else time.monotonic() + budget_s
        if place is not None and place.exists():
            for line in place.read_text().splitlines():
                try:
                    self.rows.append(json.loads(line))
                except ValueError:
                    continue

    def add(self, **row):
        """Append a row with the time, the commit and the load, and flush it to the disk."""
        now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        row = {**row, "at": now, "commit": commit(), "load": round(os.getloadavg()[0], 1)}
        self.rows.append(row)
        if self.place is None:
            return
        with self.place.open("a") as file:
            file.write(json.dumps(row) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def time_is_up(self):
        """Whether the slice of time given to this run is over; a row that was begun is finished."""
        return self._ends is not None and time.monotonic() > self._ends

    def about(self):
        """When, where and of what commit the rows are, and how busy the machine was."""
        dates = sorted({row["at"][:10] for row in self.rows}) or ["no rows"]
        commits = ", ".join(dict.fromkeys(row["commit"] for row in self.rows))
        loads = [row["load"] for row in self.rows] or [0.0]
        when = " to ".join(dict.fromkeys((dates[0], dates[-1])))
        return f"{when}; {machine()}; commit {commits}; load average {min(loads)} to {max(loads)}"


def commit():
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"


def machine():
    rows = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    model = next((row.split(":")[1].strip() for row in rows if "model name" in row), "?")
    import torch

    kernel = platform.release().partition("-")[0]
    versions = f"Linux {kernel}, Python {platform.python_version()}, torch {torch.__version__}"
    return f"{model}, {os.cpu_count()} cores; {versions}"


def add_options(options):
    options.add_argument("--results", type=pathlib.Path, help="keep each row in this file (JSON lines) as it ends")
    options.add_argument("--resume", action="store_true", help="go on after the rows that --results has")
    options.add_argument("--budget", type=float, help="begin nothing new after so many seconds")
    options.add_argument("--record", type=pathlib.Path, help="write all rows as a table")


def open_parts(options):
    if options.resume and options.results is None:
        raise SystemExit("--resume needs --results FILE")
    if options.results is not None and options.results.exists() and not options.resume:
        raise SystemExit(f"{options.results} exists: --resume goes on with it, or name another file")
    return Parts(options.results, options.budget)
