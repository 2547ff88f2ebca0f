"""Memory bandwidth of the CPU: read, write, copy and triad beyond the caches, and copy over all sizes.

Bytes are counted like in STREAM: the program's own reads and writes, without the lines that the CPU fetches before it
overwrites them.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from gpudoc.bench.model import Case, RawReading
from gpudoc.bench.sampling import Bench, Row, sample_point, timed_rate
from gpudoc.units import GIB, KIB, MIB

if TYPE_CHECKING:
    from torch import Tensor

SCALAR = 3.0
CURVE = tuple(KIB * 4**power for power in range(3, 9))  # 64 KiB to 64 MiB
# if a reported cache exceeds a quarter of this, as in a virtual machine, its usable size is measured
TRUSTED = 256 * MIB
# an array still gains from a cache if its half is read this many times faster than the whole
CACHED = 1.15
LOOKS = 3
# bytes per sample: each sample uses the next piece of the arrays, so that no piece is in a cache at its turn
PIECE = 64 * MIB
FEWEST_PIECES = 4


def array_bytes(plan_llc_bytes: int, memory_bytes: int, is_cached: Callable[[int], bool]) -> int:
    """Bytes of one array: four times the last-level cache, as STREAM requires; less if memory is short, and less for a
    large cache once `is_cached` says that an array of that size exceeds the cache that is really there.
    """
    wanted = max(128 * MIB, 4 * plan_llc_bytes) if plan_llc_bytes else TRUSTED
    most = min(wanted, max(MIB, memory_bytes // 8), 4 * GIB)
    size = min(most, TRUSTED)
    while size < most and is_cached(size):
        size = min(2 * size, most)
    return size


def is_cached(size: int) -> bool:
    """Whether an array of `size` bytes still gains from the caches: repeated reads of its first half are faster."""
    import torch

    whole = torch.arange(size // 8, dtype=torch.float64)
    half = whole[: size // 16]

    def best(part: Tensor) -> float:
        rates = []
        for _ in range(LOOKS):
            started = time.perf_counter()
            part.amax()
            rates.append(part.numel() / (time.perf_counter() - started))
        return max(rates)

    return best(half) > CACHED * best(whole)


def run(bench: Bench) -> Iterator[RawReading]:
    """Rows memory_read, _write, _copy and _triad in GB/s at all threads and one (quick: _copy only); memory_curve by
    size. The bytes of an array are in the context, not in the row's name, because they depend on a measurement.
    """
    import torch

    plan = bench.plan
    torch.set_num_threads(plan.threads)
    size = array_bytes(plan.last_level_cache_bytes, plan.memory_bytes, is_cached)
    # all values differ, and all threads make them: this many random numbers would take seconds
    source = torch.arange(size // 8, dtype=torch.float64)
    ring = _Ring(source, source.mul(0.5), torch.zeros_like(source))
    wanted = [
        (name, moved, count, action)
        for count in sorted({1, plan.threads})
        for name, moved, action in _actions()
        if count == plan.threads or name == "memory_copy" or not plan.quick
    ]
    curve = CURVE[::2] if plan.quick else CURVE
    # the curve's points are short, since the arrays of the big rows exist already
    seconds = bench.point_s(len(wanted) + len(curve) // 2)
    for name, moved, count, action in wanted:
        torch.set_num_threads(count)
        ring.touched.clear()
        row = Row(name=name, unit="GB/s", parameters={"threads": count})
        rate = timed_rate(functools.partial(ring.turn, action), moved * ring.piece_bytes / 1e9)
        reading = sample_point(bench, row, rate, seconds)
        context = {**reading.context, "array_bytes": float(size)}
        yield dataclasses.replace(reading, context=context, corrupted=_check(name, ring))
    torch.set_num_threads(plan.threads)
    for length in curve:
        part_in, part_out = source[: length // 8], ring.target[: length // 8]
        row = Row(name="memory_curve", unit="GB/s", parameters={"bytes": length, "threads": plan.threads})
        rate = timed_rate(functools.partial(part_out.copy_, part_in), 2 * length / 1e9)
        yield sample_point(bench, row, rate, seconds / 2)


class _Piece(NamedTuple):
    """The same part of three arrays: two that are read, one that is written."""

    source: Tensor
    other: Tensor
    target: Tensor


Action = Callable[[_Piece], object]


class _Ring:
    """Three arrays in pieces that are used in turn; `touched` holds the pieces used since it was cleared."""

    def __init__(self, source: Tensor, other: Tensor, target: Tensor) -> None:
        length = max(1, min(source.numel() // FEWEST_PIECES, PIECE // 8))
        slices = [slice(begin, begin + length) for begin in range(0, source.numel() - length + 1, length)]
        self.target = target
        self.pieces = [_Piece(source[part], other[part], target[part]) for part in slices]
        self.piece_bytes = 8 * length
        self.touched: set[int] = set()
        self._next = 0

    def turn(self, action: Action) -> None:
        """Do `action` on the next piece."""
        action(self.pieces[self._next])
        self.touched.add(self._next)
        self._next = (self._next + 1) % len(self.pieces)


def _actions() -> tuple[tuple[str, int, Action], ...]:
    import torch

    return (
        ("memory_read", 1, lambda piece: piece.source.amax()),
        ("memory_write", 1, lambda piece: piece.target.fill_(SCALAR)),
        ("memory_copy", 2, lambda piece: piece.target.copy_(piece.source)),
        ("memory_triad", 3, lambda piece: torch.add(piece.source, piece.other, alpha=SCALAR, out=piece.target)),
    )


def _check(name: str, ring: _Ring) -> str:
    """'' if the row's passes left the right bytes in the pieces that they touched, otherwise a text with the error."""
    right = all(_is_right(name, ring.pieces[place]) for place in ring.touched)
    return "" if right else f"{name} returned different bytes from those written"


def _is_right(name: str, piece: _Piece) -> bool:
    import torch

    source, other, target = piece

    match name:
        case "memory_write":
            return bool((target == SCALAR).all())
        case "memory_copy":
            return torch.equal(target, source)
        case "memory_triad":
            # the first and last pages, to the rounding of one fused or two separate operations
            ends = [slice(0, 4096), slice(-4096, None)]
            return all(torch.allclose(target[s], source[s] + SCALAR * other[s], rtol=1e-12) for s in ends)
        case _:
            return True


CASE = Case(
    name="memory",
    meaning="memory bandwidth of the CPU",
    share=3.0,
    absent_because=lambda bench: "less than 64 MiB of memory is free" if bench.plan.memory_bytes < 64 * MIB else "",
    run=run,
    rows={
        "memory_read": (
            "Reads an array much larger than the caches. Low: other programs use the memory, or half of the memory "
            "channels are empty."
        ),
        "memory_write": "Fills such an array with one value.",
        "memory_copy": "Copies one such array to another; read and written bytes both count.",
        "memory_triad": "STREAM's triad, a = b + s × c over three arrays: the usual figure for memory bandwidth.",
        "memory_curve": "The same copy at all sizes: the steps are the caches, the flat end is main memory.",
    },
)
