"""Memory bandwidth of the CPU: read, write, copy and triad beyond the caches, and copy over all sizes.

Bytes are counted as STREAM counts them: what the program reads and writes, without the lines that the CPU fetches
before it overwrites them.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from gpudoc.bench.model import Case, Reading
from gpudoc.bench.sampling import Bench, Row, sample_point, timed_rate
from gpudoc.units import GIB, KIB, MIB

if TYPE_CHECKING:
    from torch import Tensor

SCALAR = 3.0
CURVE = tuple(KIB * 4**power for power in range(3, 9))  # 64 KiB to 64 MiB


def array_bytes(plan_llc_bytes: int, memory_bytes: int) -> int:
    """Bytes of one array: four times the last-level cache, as STREAM asks; less where memory is short."""
    wanted = max(128 * MIB, 4 * plan_llc_bytes) if plan_llc_bytes else 256 * MIB
    return min(wanted, max(MIB, memory_bytes // 8), 4 * GIB)


def run(bench: Bench) -> Iterator[Reading]:
    """Rows memory_read, _write, _copy and _triad in GB/s at one and all threads; memory_curve by size."""
    import torch

    size = array_bytes(bench.plan.last_level_cache_bytes, bench.plan.memory_bytes)
    threads = sorted({1, bench.plan.threads})
    # the curve's points are short: the arrays of the big rows are there already
    seconds = bench.point_s(4 * len(threads) + len(CURVE) // 2)
    # every value different, and made by all threads: random numbers of this many bytes would take seconds
    source = torch.arange(size // 8, dtype=torch.float64)
    other, target = source.mul(0.5), torch.zeros_like(source)
    for count in threads:
        torch.set_num_threads(count)
        for name, moved, action in _actions(source, other, target):
            row = Row(name=name, unit="GB/s", parameters={"bytes": size, "threads": count})
            reading = sample_point(bench, row, timed_rate(action, moved * size / 1e9), seconds)
            yield dataclasses.replace(reading, corrupted=_check(name, source, other, target))
    for length in CURVE:
        part_in, part_out = source[: length // 8], target[: length // 8]
        row = Row(name="memory_curve", unit="GB/s", parameters={"bytes": length, "threads": bench.plan.threads})
        rate = timed_rate(functools.partial(part_out.copy_, part_in), 2 * length / 1e9)
        yield sample_point(bench, row, rate, seconds / 2)


def _actions(source: Tensor, other: Tensor, target: Tensor) -> tuple[tuple[str, int, Callable[[], object]], ...]:
    import torch

    return (
        ("memory_read", 1, source.amax),
        ("memory_write", 1, lambda: target.fill_(SCALAR)),
        ("memory_copy", 2, lambda: target.copy_(source)),
        ("memory_triad", 3, lambda: torch.add(source, other, alpha=SCALAR, out=target)),
    )


def _check(name: str, source: Tensor, other: Tensor, target: Tensor) -> str:
    """'' when the last pass left the right bytes in `target`, else what is wrong with them."""
    import torch

    match name:
        case "memory_write":
            right = bool((target == SCALAR).all())
        case "memory_copy":
            right = torch.equal(target, source)
        case "memory_triad":
            # the first and last pages, to the rounding of one fused or two separate operations
            ends = [slice(0, 4096), slice(-4096, None)]
            right = all(torch.allclose(target[s], source[s] + SCALAR * other[s], rtol=1e-12) for s in ends)
        case _:
            right = True
    return "" if right else f"{name} left other bytes than were written"


CASE = Case(
    name="memory",
    meaning="memory bandwidth of the CPU",
    share=3.0,
    absent_because=lambda bench: "less than 64 MiB of memory is free" if bench.plan.memory_bytes < 64 * MIB else "",
    run=run,
    rows={
        "memory_read": (
            "Reads an array far beyond the caches. Low: other programs use the memory, or half of the channels are "
            "empty."
        ),
        "memory_write": "Fills such an array with one value.",
        "memory_copy": "Copies one such array to another; read and written bytes both count.",
        "memory_triad": "STREAM's triad, a = b + s × c over three arrays: the usual figure for memory bandwidth.",
        "memory_curve": "The copy again over all sizes: the steps are the caches, the flat end is the memory.",
    },
)
