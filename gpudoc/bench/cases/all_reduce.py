"""All-reduce over all GPUs of the machine, as data-parallel training uses it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

from gpudoc.bench.collective import SIZES, bus_gb_per_s
from gpudoc.bench.model import Case, Reading
from gpudoc.bench.sampling import Bench

TIMEOUT_S = 60.0


def measure(backend: str, kind: str, ranks: int, sizes: Sequence[int]) -> dict[int, list[float]]:
    """Seconds of each all-reduce by size, from `ranks` processes; RuntimeError with torchrun's last words."""
    arguments = [f"--nproc-per-node={ranks}", "-m", "gpudoc.bench.collective", backend, kind, *map(str, sizes)]
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", *arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    line = next((text for text in done.stdout.splitlines() if text.startswith("{")), "")
    if done.returncode or not line:
        last = [text for text in done.stderr.splitlines() if "Error" in text]
        raise RuntimeError(f"all-reduce over {ranks} processes failed: {last[-1] if last else 'no output'}")
    return {int(size): seconds for size, seconds in json.loads(line).items()}


def run(bench: Bench) -> Iterator[Reading]:
    """Rows all_reduce in GB/s of bus bandwidth (comparable to the links) by size."""
    ranks = bench.plan.num_gpus
    began = time.monotonic()
    for size, seconds in measure("nccl", "cuda", ranks, SIZES).items():
        yield Reading(
            name="all_reduce",
            device=bench.device.name,
            parameters={"bytes": size, "ranks": ranks},
            unit="GB/s",
            samples=tuple(bus_gb_per_s(size, one, ranks) for one in seconds),
            round=bench.round,
            began_s=began,
            ended_s=time.monotonic(),
        )


CASE = Case(
    name="all_reduce",
    meaning="all-reduce over all GPUs",
    share=1.0,
    absent_because=lambda bench: "there is one GPU" if bench.plan.num_gpus < 2 else "",
    run=run,
)
