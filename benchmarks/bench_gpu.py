"""Compares gpudoc bench on this GPU with the methods of nvbandwidth and mamf-finder, repeated here, and with itself.

    python -m benchmarks.bench_gpu

nvbandwidth's: 512 MiB pinned, 16 copies behind a spin kernel, events around them, median of 3.
mamf-finder's: products at gpudoc's own shapes, cache flushed by a 256 MiB zero before each, events around each, steady
for two seconds; the median of the second half.
A step of `make gpu-check`. Targets: copies within 3 %, 16-bit products at least 95 %; the spread, (p90 - p10) / p50, of
copies at most 1 %, of sustained products at most 2 %; two runs within 2 %.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import torch

from benchmarks.gpu_check.model import Comparison, Result, error_line
from tests.gpu.half import half_of

ROOT = pathlib.Path(__file__).resolve().parents[1]
SIZE, COPIES = 512 << 20, 16


def copies_by_nvbandwidth():
    host = torch.empty(SIZE, dtype=torch.uint8).random_().pin_memory()
    device = torch.empty(SIZE, dtype=torch.uint8, device="cuda")
    found = {}
    for name, target, source in (("h2d", device, host), ("d2h", host, device)):
        for _ in range(4):
            target.copy_(source, non_blocking=True)
        rates = []
        for _ in range(3):
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda.synchronize()
            torch.cuda._sleep(20_000_000)
            start.record()
            for _ in range(COPIES):
                target.copy_(source, non_blocking=True)
            stop.record()
            torch.cuda.synchronize()
            rates.append(SIZE * COPIES / 1e9 / (start.elapsed_time(stop) / 1e3))
        found[name] = sorted(rates)[1]
    return found


def steady_by_mamf_finder(shape, dtype):
    rows, columns, depth = (int(one) for one in shape.split("x"))
    left = torch.randn(rows, depth, device="cuda", dtype=dtype)
    right = torch.randn(depth, columns, device="cuda", dtype=dtype)
    out = torch.empty(rows, columns, device="cuda", dtype=dtype)
    flush = torch.zeros(256 << 20, dtype=torch.uint8, device="cuda")
    pairs = []
    end = time.monotonic() + 4.0
    while time.monotonic() < end:
        burst = []
        for _ in range(50):
            flush.zero_()
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            torch.mm(left, right, out=out)
            stop.record()
            burst.append((start, stop))
        torch.cuda.synchronize()
        pairs += burst
    times = sorted(start.elapsed_time(stop) / 1e3 for start, stop in pairs[len(pairs) // 2 :])
    return 2 * rows * columns * depth / 1e12 / times[len(times) // 2]


def bench(folder, name):
    path = pathlib.Path(folder) / f"{name}.json"
    command = [
        sys.executable,
        "-m",
        "gpudoc",
        "bench",
        "--quick",
        "--device",
        "cuda",
        "--only",
        "copies,matmul",
        "--out",
        str(path),
    ]
    environment = {**os.environ, "PYTHONPATH": os.environ.get("PYTHONPATH") or str(ROOT)}
    done = subprocess.run(command, check=False, env=environment, capture_output=True, text=True)
    if not path.exists():
        raise MissingError(f"bench measured nothing: {error_line(done.stderr)}")
    return json.loads(path.read_text())["measurements"]


class MissingError(Exception):
    """The bench result lacks a row that should be compared."""


def row(rows, name, **parameters):
    found = [r for r in rows if r["name"] == name and parameters.items() <= r["parameters"].items()]
    kept = [r for r in found if r["value"]]
    if not kept:
        why = "; ".join(dict.fromkeys(doubt["text"] for one in found for doubt in one["doubts"]))
        raise MissingError(
            f"bench has no figure for {name} {' '.join(map(str, parameters.values()))}: {why or 'not measured'}"
        )
    return max(kept, key=lambda one: one["value"])


def spread(one):
    return (one["p90"] - one["p10"]) / one["p50"]


def compare(name, theirs, ours, again, most):
    """Three comparisons of a row: with the other method, with its own second run, and its spread as a failure."""
    low = 0.97 if most < 0.02 else 0.95
    yield Comparison(name=name, guessed=theirs, measured=ours["value"], unit=ours["unit"], low=low, high=2 - low)
    yield Comparison(
        name=f"{name}, second run",
        guessed=ours["value"],
        measured=again["value"],
        unit=ours["unit"],
        low=0.98,
        high=1.02,
    )
    wide = {"guessed": None, "measured": 100 * spread(ours), "unit": "%"}
    yield Comparison(name=f"spread of {name}, at most {most:.0%}", **wide)


def main():
    if not torch.cuda.is_available():
        sys.exit("torch sees no GPU here; gpudoc doctor says why")
    result = Result()
    try:
        compare_all(result)
    except MissingError as problem:
        result.failures.append(str(problem))
    print(result.to_line())


def compare_all(result):
    """Fills `result`; MissingError if bench refused a row that should be compared."""
    with tempfile.TemporaryDirectory() as folder:
        first, second = bench(folder, "first"), bench(folder, "second")
    copies = copies_by_nvbandwidth()
    name, dtype = half_of(torch.cuda.get_device_capability())
    best = row(first, "matmul", dtype=name, mode="sustained")
    steady = steady_by_mamf_finder(best["parameters"]["shape"], dtype)
    rows = [
        ("h2d beside nvbandwidth's method", copies["h2d"], "h2d", {"host": "pinned"}, 0.01),
        ("d2h beside nvbandwidth's method", copies["d2h"], "d2h", {"host": "pinned"}, 0.01),
        (
            f"sustained {name} products beside mamf-finder's method", steady, "matmul",
            {"dtype": name, "mode": "sustained", "shape": best["parameters"]["shape"]}, 0.02,
        ),
    ]  # fmt: skip
    for title, theirs, kind, parameters, most in rows:
        ours, again = row(first, kind, **parameters), row(second, kind, **parameters)
        result.comparisons += compare(title, theirs, ours, again, most)
        if spread(ours) > most:
            result.failures.append(
                f"{title}: bench's own spread is {spread(ours):.1%}, and at most {most:.0%} was meant"
            )


if __name__ == "__main__":
    main()
