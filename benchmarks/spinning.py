"""How long OpenMP's threads should spin while they wait: training steps per second by libgomp's GOMP_SPINCOUNT.

The steps run alone and beside busy loops.

    python benchmarks/spinning.py [--rounds 8] [--seconds 1.0] [--loads 0,1,2] [--counts default,0,1000] [--record FILE]

One process for each count trains each net in its turn, so that all counts have the same neighbours; the
others sleep meanwhile. A figure is the median over rounds of the ratio to the default count in the same round and with
the same load, and in the last table the ratio to the same count with nothing beside it. The load average in the
record shows what else the machine does. With --ahead, as root, the training is scheduled ahead of all of that, as if
the machine were idle: nothing else runs for these seconds. It does not suit loops, which would come last.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import statistics
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from in_parts import commit

from gpudoc.process.openmp import SPINS, SPINS_IN_A_CROWD

CHILD = """
import sys, time, torch
from torch import nn
torch.manual_seed(1)
torch.set_num_threads(int(sys.argv[1]))

def train(model, x, y):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    def step():
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return step

def mlp(width, batch):
    hidden = [nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()]
    return train(nn.Sequential(*hidden, nn.Linear(width, 10)), torch.randn(batch, width), torch.randint(10, (batch,)))

def conv():
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(64, 10),
    )
    return train(model, torch.randn(16, 3, 32, 32), torch.randint(10, (16,)))

def transformer():
    layer = nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    model = nn.Sequential(encoder, nn.Flatten(), nn.Linear(256 * 64, 10))
    return train(model, torch.randn(16, 64, 256), torch.randint(10, (16,)))

nets = {"small": mlp(256, 64), "conv": conv(), "large": mlp(1536, 256), "transformer": transformer()}
for step in nets.values():
    for _ in range(3):
        step()
print("ready", flush=True)
for line in sys.stdin:
    name, seconds = line.split()
    step = nets[name]
    step()
    cpu, began, count = time.process_time(), time.perf_counter(), 0
    while time.perf_counter() - began < float(seconds):
        step()
        count += 1
    spent = time.perf_counter() - began
    print(count / spent, (time.process_time() - cpu) / spent, flush=True)
"""
NETS = ("small", "conv", "large", "transformer")
COUNTS = ("default", "0", "300", "1000", "3000", "10000", "30000", "100000")


class Trainer:
    """A process that trains on request, with one spin count."""

    def __init__(self, count: str, threads: int) -> None:
        known = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_", "KMP_"))}
        extra = {} if count == "default" else {"GOMP_SPINCOUNT": count}
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(threads)],
            env={**known, **extra}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def hear(self) -> str:
        line = self.process.stdout.readline()
        assert line, "the process that trains has ended"
        return line.strip()

    def go_ahead(self) -> None:
        """Schedule all its threads ahead of everything that is not real-time."""
        for thread in Path(f"/proc/{self.process.pid}/task").iterdir():
            os.sched_setscheduler(int(thread.name), os.SCHED_FIFO, os.sched_param(1))

    def train(self, net: str, seconds: float) -> float:
        """Steps per second."""
        self.process.stdin.write(f"{net} {seconds}\n")
        self.process.stdin.flush()
        return float(self.hear().split()[0])

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def measure(options: argparse.Namespace) -> tuple[dict, list[float]]:
    """Steps per second by (load, net, count), one for each round; and the load averages seen."""
    trainers = {count: Trainer(count, options.threads) for count in options.counts.split(",")}
    loads = [int(load) for load in options.loads.split(",")]
    found, averages = defaultdict(list), []
    try:
        for trainer in trainers.values():
            assert trainer.hear() == "ready"
            if options.ahead:
                trainer.go_ahead()
        for number in range(options.rounds):
            for load in loads:
                busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(load)]
                try:
                    for net in NETS:
                        # so that no count always comes first after a change of load
                        order = list(trainers)[number % len(trainers) :] + list(trainers)[: number % len(trainers)]
                        for count in order:
                            found[load, net, count].append(trainers[count].train(net, options.seconds))
                finally:
                    for process in busy:
                        process.kill()
                        process.wait()
            averages.append(os.getloadavg()[0])
            print(
                f"round {number + 1} of {options.rounds}, load average {averages[-1]:.1f}", file=sys.stderr, flush=True
            )
    finally:
        for trainer in trainers.values():
            trainer.end()
    return found, averages


def tables(found: dict, options: argparse.Namespace) -> str:
    counts = options.counts.split(",")
    loads = [int(load) for load in options.loads.split(",")]
    lines = []
    for title, base in (
        ("Steps per second, of the default's in the same turn", None),
        ("Of what the same count does alone", 0),
    ):
        lines += ["", f"## {title}", "", f"| loops | net | {' | '.join(counts)} |", "|---|---|" + "---|" * len(counts)]
        for load in loads if base is None else [load for load in loads if load]:
            for net in NETS:
                cells = []
                for count in counts:
                    mine = found[load, net, count]
                    other = found[load, net, "default"] if base is None else found[base, net, count]
                    ratios = [a / b for a, b in zip(mine, other, strict=True)]
                    cells.append(f"{statistics.median(ratios):.2f}")
                lines.append(f"| {load} | {net} | {' | '.join(cells)} |")
    return "\n".join([*lines, *chosen(found, counts, loads)])


def chosen(found: dict, counts: list[str], loads: list[int]) -> list[str]:
    """The rate with the spin count that gpudoc chooses by the load at its start, as a share of its rate alone."""
    if not {SPINS, SPINS_IN_A_CROWD} <= set(counts) or 0 not in loads:
        return []
    lines = ["", "## As gpudoc chooses at its start, of what it does alone", ""]
    lines += [f"| loops | count | {' | '.join(NETS)} |", "|---|---|" + "---|" * len(NETS)]
    for load in [load for load in loads if load]:
        pairs = [zip(found[load, net, SPINS_IN_A_CROWD], found[0, net, SPINS], strict=True) for net in NETS]
        cells = [f"{statistics.median(a / b for a, b in pair):.2f}" for pair in pairs]
        lines.append(f"| {load} | {SPINS_IN_A_CROWD} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--loads", default="0,1,2")
    parser.add_argument("--counts", default=",".join(COUNTS))
    parser.add_argument("--ahead", action="store_true")
    parser.add_argument("--record", type=Path)
    options = parser.parse_args()
    found, averages = measure(options)
    import torch

    head = (
        f"# How long OpenMP's threads spin\n\n{datetime.date.today()}; {os.cpu_count()} CPUs, {platform.platform()}, "
        f"torch {torch.__version__}, {options.threads} threads; commit {commit()}; {options.rounds} rounds of "
        f"{options.seconds} s; load average {min(averages):.1f} to {max(averages):.1f} with what else the machine did."
    )
    text = f"{head}\n{tables(found, options)}\n"
    print(text)
    if options.record:
        options.record.write_text(text)


if __name__ == "__main__":
    main()
