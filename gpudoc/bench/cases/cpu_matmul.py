"""Matrix multiplication on the CPU in fp32 and bf16, over sizes and thread counts."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpudoc.bench.cases.checks import check_product
from gpudoc.bench.model import Case, RawReading
from gpudoc.bench.sampling import Bench, Row, fewest_samples, sample_point, timed_rate
from gpudoc.units import MIB

if TYPE_CHECKING:
    import torch

SIZES = (512, 1024, 2048)
LARGE = 4096
MANY_THREADS = 8
# a point that would last this many times its seconds is left out and reported
PATIENCE = 4.0


@dataclass(frozen=True, slots=True)
class CpuProduct:
    """One product: square matrices of `size` in `dtype` on `threads` threads."""

    dtype: str
    size: int
    threads: int


def choose_points(threads: int, quick: bool) -> tuple[CpuProduct, ...]:
    """All threads at every size; fewer threads at 1024, in powers of two. A quick run has the sizes that fit its
    seconds, and one thread in fp32.
    """
    if quick:
        # only a product that takes few cores a tenth of a second keeps many cores busy
        sizes = SIZES if threads >= MANY_THREADS else SIZES[:2]
        alone = (CpuProduct("fp32", 1024, 1),) if threads > 1 else ()
        return (*alone, *(CpuProduct(dtype, size, threads) for dtype in ("fp32", "bf16") for size in sizes))
    counts = [count for count in (1, 2, 4, 8, 16, 32, 64, 128) if count < threads]
    return tuple(
        point
        for dtype in ("fp32", "bf16")
        for point in (
            *(CpuProduct(dtype, 1024, count) for count in counts),
            *(CpuProduct(dtype, size, threads) for size in (*SIZES, LARGE)),
        )
    )


def run(bench: Bench) -> Iterator[RawReading]:
    """Rows 'cpu_matmul' in GFLOP/s (2 n^3 operations); some rows of each product are checked against float64."""
    import torch

    points = choose_points(bench.plan.threads, bench.plan.quick)
    seconds = bench.point_s(len(points))
    speed: dict[tuple[str, int], float] = {}
    for point in points:
        per_thread = speed.get((point.dtype, point.threads)) or speed.get((point.dtype, 1))
        expected_s = 2 * point.size**3 / per_thread if per_thread else 0.0
        needed_s = expected_s * (fewest_samples(bench.plan.rounds) + 2)
        if needed_s > PATIENCE * max(seconds, 0.2):
            because = f"the samples would take about {needed_s:.1f} s here, and there are only {seconds:.1f} s"
            bench.leave_out(f"matmul {point.dtype} {point.size}", because)
            continue
        torch.set_num_threads(point.threads)
        reading = _measure(bench, point, seconds)
        speed[point.dtype, point.threads] = max(reading.samples) * 1e9
        yield reading


def _measure(bench: Bench, point: CpuProduct, seconds: float) -> RawReading:
    import torch

    left, right = (torch.randn(point.size, point.size).to(_dtype(point.dtype)) for _ in range(2))
    out = torch.empty_like(left)
    row = Row(
        name="cpu_matmul",
        unit="GFLOP/s",
        parameters={"dtype": point.dtype, "size": point.size, "threads": point.threads},
    )
    rate = timed_rate(lambda: torch.mm(left, right, out=out), 2 * point.size**3 / 1e9, at_least_s=0.004)
    reading = sample_point(bench, row, rate, seconds)
    return dataclasses.replace(reading, corrupted=check_product(left, right, out))


def _dtype(name: str) -> torch.dtype:
    import torch

    return {"fp32": torch.float32, "bf16": torch.bfloat16}[name]


CASE = Case(
    name="matmul",
    meaning="matrix multiplication on the CPU",
    share=4.0,
    absent_because=lambda bench: "less than 256 MiB of memory is free" if bench.plan.memory_bytes < 256 * MIB else "",
    run=run,
    rows={
        "cpu_matmul": (
            "Multiplies square matrices, by type, size and threads: the most that the CPU's vector and matrix units "
            "do in practice. Low: other programs are running, a CPU quota applies, or the torch build lacks the "
            "CPU's instructions."
        ),
    },
)
