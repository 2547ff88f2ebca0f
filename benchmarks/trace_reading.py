"""How much time and memory doctor takes for a large trace, compared with reading the same file with json.load.

    python benchmarks/trace_reading.py [--megabytes 500] [--repeat 2] [--nsys]

The trace is planted: equal steps with loading, kernels, copies and communication, as torch.profiler writes them, or in
the lines of `nsys export --type json`, which json.load does not read.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

from tests.fakes.traces import Planted, Step, planted, write_nsys_lines  # noqa: E402

TIME = re.compile(r'("(?:startNs|endNs|Timestamp|EndTimestamp)":)"(\d+)"')
WAYS = {
    "gpudoc doctor": [sys.executable, "-m", "gpudoc", "doctor"],
    "json.load": [sys.executable, "-c", "import json, sys; json.load(open(sys.argv[1]))"],
}


def steps() -> tuple[Planted, float]:
    """Some steps, and how long they take in microseconds."""
    made = planted(Step(data=2_000, kernels=400, kernel=40, launch=30, talk=900, copy=300), steps=20)
    return made, max(event["ts"] + event["dur"] for event in made.events) - 1_000_000.0


def later(line: str, shift_ns: int) -> str:
    """A line of nsys with its times this much later."""
    return TIME.sub(lambda time: f'{time[1]}"{int(time[2]) + shift_ns}"', line)


def write_lines(path: Path, megabytes: int) -> int:
    """The same as `write`, in the lines of nsys."""
    made, length = steps()
    table, *lines = write_nsys_lines(path, made).read_text("utf-8").splitlines(keepends=True)
    count, shift = 0, 0
    with path.open("w") as file:
        file.write(table)
        while file.tell() < megabytes * 1_000_000:
            file.writelines(later(line, shift) for line in lines)
            count += len(lines)
            shift += round(1000 * length)
    return count


def write(path: Path, megabytes: int) -> int:
    """Write a trace of that size from repeated steps; returns how many events it has."""
    made, length = steps()
    count = 0
    with path.open("w") as file:
        file.write('{"schemaVersion": 1, "deviceProperties": [], "traceEvents": [\n')
        shift = 0.0
        while file.tell() < megabytes * 1_000_000:
            for event in made.events:
                shifted = {**event, "ts": event["ts"] + shift}
                file.write(("" if count == 0 else ",\n") + json.dumps(shifted, indent=1))
                count += 1
            shift += length
        file.write("\n]}\n")
    return count


def measure(command: list[str], path: Path) -> tuple[float, float]:
    """Wall seconds and the largest resident set in MiB."""
    began = time.perf_counter()
    child = subprocess.Popen([*command, str(path)], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode not in (0, 1):
        raise SystemExit(f"{command}: exit code {child.returncode}")
    return time.perf_counter() - began, used.ru_maxrss / 1024


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--megabytes", type=int, default=500)
    options.add_argument("--repeat", type=int, default=2)
    options.add_argument("--nsys", action="store_true")
    asked = options.parse_args()
    ways = {name: command for name, command in WAYS.items() if name != "json.load" or not asked.nsys}
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        count = (write_lines if asked.nsys else write)(path, asked.megabytes)
        print(f"{path.stat().st_size / 1e6:.0f} MB, {count} events, load {os.getloadavg()[0]:.1f}")
        for turn in range(asked.repeat):
            for name, command in ways.items():
                seconds, peak = measure(command, path)
                print(f"turn {turn + 1}  {name:14} {seconds:6.1f} s  {peak:6.0f} MiB")


if __name__ == "__main__":
    main()
