"""Whether `gpudoc doctor --pid` tells a leak from warming up and from noise, each planted several times.

    python campaigns/watch_leaks.py [--times 1] [--only KIND,...] [--seconds 25] [--record FILE]
                                     [--results FILE [--resume] [--budget SECONDS]]

Leaks: every step keeps a tensor, large or small. No leaks: a cache that fills for a hundred steps, sizes that vary, a
loop beside busy neighbours. A round takes some seven minutes and plants every kind once; --times N makes N rounds, in
slices with --budget. A job that doctor says it could not judge is neither right nor wrong. Exit code 1 when a leak was
missed or something else was called one. The pure part is tested in tests/doctor/live/test_trend.py.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "benchmarks"))
from in_parts import Parts, add_options, open_parts

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


def watch_one(kind: str, seconds: float) -> dict[str, object]:
    """What doctor says of one planted job: a 'leak', 'none', or why it 'cannot tell'."""
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
    document = json.loads(done.stdout)
    causes = [finding["id"] for finding in document["findings"]]
    why = next((one["because"] for one in document["skipped"] if one["id"] == "host_memory_leak"), "")
    said = "leak" if any(name in LEAKS for name in causes) else "cannot tell" if why else "none"
    return {"kind": kind, "said": said, "causes": causes, "why": why}


def is_wrong(row: dict[str, object]) -> bool:
    """Whether a leak was missed without a word, or something else was called one."""
    return row["said"] == ("none" if str(row["kind"]).startswith("leak") else "leak")


def summary(rows: list[dict[str, object]]) -> str:
    """How many of all verdicts were wrong, and how many jobs could not be judged."""
    wrong, unjudged = sum(map(is_wrong, rows)), sum(row["said"] == "cannot tell" for row in rows)
    return f"{len(rows) - wrong - unjudged} of {len(rows)} right, {wrong} wrong, {unjudged} said to be not judged"


def write_record(place: pathlib.Path, parts: Parts, asked: argparse.Namespace) -> None:
    """A line for each kind, with the machine and its load."""
    words = ("leak", "none", "cannot tell")
    lines = ["| planted | times | called a leak | called none | not judged | wrong |", "|" + "---|" * 6]
    for kind in KINDS:
        rows = [row for row in parts.rows if row["kind"] == kind]
        counts = [len(rows), *(sum(row["said"] == word for row in rows) for word in words), sum(map(is_wrong, rows))]
        lines.append(f"| {kind} | " + " | ".join(map(str, counts)) + " |")
    title = "# gpudoc doctor --pid: leaks told from warming up and from noise"
    command = f"Command: `python campaigns/watch_leaks.py --seconds {asked.seconds:g}`."
    text = [title, "", f"{parts.about()}.", command, "", f"{summary(parts.rows)}.", "", *lines]
    place.write_text("\n".join(text) + "\n")


def main() -> int:
    """Plant each kind as often as asked; exit code 1 when one verdict was wrong."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--times", type=int, default=1)
    options.add_argument("--only", default="")
    options.add_argument("--seconds", type=float, default=25.0)
    add_options(options)
    options.add_argument("--job", help=argparse.SUPPRESS)
    asked = options.parse_args()
    if asked.job:
        train(*KINDS[asked.job][:3])
        return 0
    parts = open_parts(asked)
    kinds = [kind for kind in KINDS if not asked.only or kind in asked.only.split(",")]
    for number, kind in [(number, kind) for number in range(asked.times) for kind in kinds]:
        if sum(row["kind"] == kind for row in parts.rows) > number:
            continue
        if parts.time_is_up():
            print("time is up; the rest is left for --resume", flush=True)
            break
        parts.add(**watch_one(kind, asked.seconds))
        print(json.dumps(parts.rows[-1]), flush=True)
        if asked.record:
            write_record(asked.record, parts, asked)
    print(summary(parts.rows))
    return int(any(map(is_wrong, parts.rows)))


if __name__ == "__main__":
    sys.exit(main())
