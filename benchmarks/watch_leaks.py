"""Whether `gpudoc doctor --pid` tells a leak from warming up and from noise, each planted several times.

    python benchmarks/watch_leaks.py [--times 10] [--only KIND,...] [--seconds 25] [--record FILE]

Leaks: every step keeps a tensor, large or small. No leaks: a cache that fills for a hundred steps, sizes that vary, a
loop beside busy neighbours. Prints a row for each kind; exit code 1 when a leak was missed or something else was
called one. The pure part is tested in tests/doctor/live/test_trend.py.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parents[1]
# kind: (bytes that each step keeps, steps in which it keeps them, bytes by which a step's size varies, neighbours)
KINDS = {
    "leak of 2 MiB a step": (2 << 20, 1 << 40, 0, 0),
    "leak of 64 KiB a step": (64 << 10, 1 << 40, 0, 0),
    "leak beside neighbours": (1 << 20, 1 << 40, 0, 3),
    "leak with sizes that vary": (1 << 20, 1 << 40, 16 << 20, 0),
    "warm-up of 100 steps": (1 << 20, 100, 0, 0),
    "warm-up beside neighbours": (1 << 20, 300, 0, 3),
    "sizes that vary": (0, 0, 64 << 20, 0),
    "busy neighbours": (0, 0, 8 << 20, 3),
    "healthy": (0, 0, 0, 0),
}
LEAKS = ("host_memory_leak", "leak_graph_kept")
SETTLED_S = 12.0


def train(kept_bytes: int, keeping_steps: int, varying_bytes: int) -> None:
    """The job: a small net, steps of some 20 ms, and memory as planted; a line is printed at the first step."""
    import random

    import torch

    torch.set_num_threads(1)
    model = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(8)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    kept, chance = [], random.Random(os.getpid())
    for step in range(1 << 40):
        noise = torch.ones(max(1, chance.randrange(varying_bytes or 1) // 4))
        loss = model(torch.randn(256, 256)).pow(2).mean() + noise[0] * 0
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step < keeping_steps:
            kept.append(torch.ones(max(1, kept_bytes // 4)))
        if step == 0:
            print("trains", flush=True)


@contextlib.contextmanager
def running(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A process of its own group, killed at the end."""
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def watch_one(kind: str, seconds: float) -> list[str]:
    """The causes that doctor names of one planted job."""
    with contextlib.ExitStack() as stack:
        for _ in range(KINDS[kind][3]):
            stack.enter_context(running("-c", "while True: pass"))
        job = stack.enter_context(running(__file__, "--job", kind))
        assert job.stdout is not None
        job.stdout.readline()
        if KINDS[kind][1] > 1 << 20 or not KINDS[kind][0]:
            time.sleep(SETTLED_S)
        command = [sys.executable, "-m", "gpudoc", "doctor", "--pid", str(job.pid), "--seconds", str(seconds), "--json"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return [finding["id"] for finding in json.loads(done.stdout)["findings"]]


def main() -> int:
    """Plant each kind as often as asked; exit code 1 when one verdict was wrong."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--times", type=int, default=10)
    options.add_argument("--only", default="")
    options.add_argument("--seconds", type=float, default=25.0)
    options.add_argument("--record", type=pathlib.Path)
    options.add_argument("--job", help=argparse.SUPPRESS)
    asked = options.parse_args()
    if asked.job:
        train(*KINDS[asked.job][:3])
        return 0
    rows = []
    for kind in [kind for kind in KINDS if not asked.only or kind in asked.only.split(",")]:
        found = [watch_one(kind, asked.seconds) for _ in range(asked.times)]
        called = sum(any(name in LEAKS for name in names) for names in found)
        right = called if kind.startswith("leak") else asked.times - called
        rows.append({"kind": kind, "times": asked.times, "called_leak": called, "right": right})
        print(json.dumps(rows[-1]), flush=True)
    if asked.record:
        document = {
            "date": datetime.date.today().isoformat(),
            "cpus": len(os.sched_getaffinity(0)),
            "load": os.getloadavg()[0],
            "seconds": asked.seconds,
            "rows": rows,
        }
        asked.record.write_text(json.dumps(document, indent=1) + "\n")
    return int(any(row["right"] != row["times"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
