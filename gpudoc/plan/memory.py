"""The memory of a step as a function of the batch: each storage's size through the traced points, summed in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from gpudoc.plan.tape import Assumption, Formula, Storage, StorageKind, Tape, Work

Sizes = npt.NDArray[np.int64]

# the CUDA caching allocator hands out multiples of 512 bytes (kMinBlockSize, c10/cuda/CUDACachingAllocator.h)
CUDA_ROUNDING = 512


@dataclass(frozen=True, kw_only=True, slots=True)
class Composition:
    """The parts of the peak, in bytes: by kind, and by module and kind, largest first."""

    by_kind: dict[StorageKind, int]
    by_module: tuple[tuple[str, StorageKind, int], ...]


@dataclass(frozen=True, kw_only=True)
class MemoryModel:
    """Events in order, with sizes known at a few batches; other batches are interpolated block by block.

    Two points give the exact affine form a + c * b of every block; a third makes it quadratic if the line misses.
    `exact` is False if the traces took different paths, so that only their peaks could be joined.
    """

    like: str
    batches: tuple[int, ...]
    points: tuple[Sizes, ...]
    blocks: tuple[Storage, ...]
    events: Sizes
    marks: dict[str, int]
    notes: tuple[Assumption, ...]
    exact: bool = True
    formulas: tuple[tuple[int, Formula, Formula], ...] = ()

    def sizes(self, batch: int) -> Sizes:
        """Bytes of every block at `batch`, as the code asks for them."""
        total = np.zeros(len(self.blocks), dtype=object)
        shared = 1
        for here in self.batches:
            for there in self.batches:
                shared *= abs(here - there) or 1
        for here, size in zip(self.batches, self.points, strict=True):
            weight, divisor = 1, 1
            for there in self.batches:
                if there != here:
                    weight *= batch - there
                    divisor *= here - there
            total += size.astype(object) * (weight * (shared // divisor))
        result: Sizes = np.maximum(0, -(-total // shared)).astype(np.int64)
        for index, small, large in self.formulas:
            result[index] = small.of(*(self._line(a, b, batch) for a, b in zip(small.dims, large.dims, strict=True)))
        return result

    def _line(self, first: int, second: int, batch: int) -> int:
        at, there = self.batches[:2]
        return max(0, first + (second - first) * (batch - at) // (there - at))

    def living(self, batch: int) -> Sizes:
        """Allocated bytes after every event; on CUDA every block is rounded up as its allocator does."""
        sizes = self.sizes(batch)
        if self.like == "cuda":
            sizes = -(-sizes // CUDA_ROUNDING) * CUDA_ROUNDING
        born = self.events >= 0
        changes = np.where(born, sizes[np.where(born, self.events, 0)], -sizes[np.where(born, 0, ~self.events)])
        return np.cumsum(changes)

    def peak_bytes(self, batch: int) -> int:
        """The largest sum of living blocks, from the building of the model to the last traced step."""
        living = self.living(batch)
        return int(living.max()) if len(living) else 0

    def bytes_per_sample(self, batch: int) -> float:
        """Bytes by which the peak grows per sample around `batch`."""
        return (self.peak_bytes(batch + 8) - self.peak_bytes(batch)) / 8

    def composition(self, batch: int) -> Composition:
        """The blocks alive at the moment of the peak."""
        sizes, living = self.sizes(batch), self.living(batch)
        alive = np.zeros(len(self.blocks), dtype=bool)
        for event in self.events[: int(living.argmax()) + 1]:
            alive[event if event >= 0 else ~event] = event >= 0
        by_kind = dict.fromkeys(StorageKind, 0)
        by_module: dict[tuple[str, StorageKind], int] = {}
        for index in np.flatnonzero(alive):
            block, size = self.blocks[index], int(sizes[index])
            by_kind[block.kind] += size
            key = (block.module, block.kind)
            by_module[key] = by_module.get(key, 0) + size
        rows = sorted(((*key, size) for key, size in by_module.items()), key=lambda row: -row[2])
        return Composition(by_kind=by_kind, by_module=tuple(rows))

    def largest_batch(self, limit_bytes: int, most: int = 1 << 20) -> int:
        """The largest batch whose peak stays within `limit_bytes`, 0 if not even one sample fits."""
        return largest_that(lambda batch: self.peak_bytes(batch) <= limit_bytes, most)

    def grows_faster_than_the_batch(self) -> bool:
        """Whether a block would be negative at batch 0: a size that grows with the square of the batch."""
        if len(self.batches) != 2:
            return False
        (small, large), (first, second) = self.batches, self.points
        superlinear = first * large < second * small
        superlinear[[index for index, _, _ in self.formulas]] = False
        return bool(superlinear.any())


def largest_that(fits: Callable[[int], bool], most: int) -> int:
    """The largest number up to `most` for which `fits(number)` holds, 0 for none, if it holds for all smaller ones."""
    if not fits(1):
        return 0
    low, high = 1, 2
    while high <= most and fits(high):
        low, high = high, high * 2
    return _halve(fits, low, min(high, most + 1))


def largest_near(fits: Callable[[int], bool], guess: int, most: int) -> int:
    """The same, searched around `guess`; the edge near it if `fits` has holes."""
    step = max(1, guess // 64)
    low, high = guess, guess + step
    if guess >= 1 and fits(guess):
        while high <= most and fits(high):
            step *= 2
            low, high = high, high + step
    else:
        low, high = guess - step, guess
        while low > 0 and not fits(low):
            step *= 2
            low, high = low - step, low
    return _halve(fits, max(0, low), min(high, most + 1))


def _halve(fits: Callable[[int], bool], low: int, high: int) -> int:
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def join(tapes: Sequence[Tape], like: str) -> MemoryModel:
    """One model from tapes of the same step at different batches; at least two."""
    first = tapes[0]
    orders = [_in_order(tape) for tape in tapes]
    same = all(order == orders[0] for order in orders) and all(_ops(tape) == _ops(first) for tape in tapes)
    if same:
        points = tuple(np.array([block.size_bytes for block in tape.blocks], dtype=np.int64) for tape in tapes)
        blocks, events = tuple(first.blocks), np.array(orders[0], dtype=np.int64)
        formulas = _formulas(tapes)
    else:
        formulas = ()
        whole = Storage(0, "whole step", "", first.blocks[-1].phase)
        points = tuple(np.array([tape.peak_bytes()], dtype=np.int64) for tape in tapes)
        blocks, events = (whole,), np.array([0, -1], dtype=np.int64)
    return MemoryModel(
        like=like,
        batches=tuple(tape.batch for tape in tapes),
        points=points,
        blocks=blocks,
        events=events,
        marks=dict(first.marks) if same else {},
        notes=tuple(dict.fromkeys(note for tape in tapes for note in tape.notes)),
        exact=same,
        formulas=formulas,
    )


def _formulas(tapes: Sequence[Tape]) -> tuple[tuple[int, Formula, Formula], ...]:
    pairs = enumerate(zip(tapes[0].blocks, tapes[1].blocks, strict=True))
    return tuple((index, a.formula, b.formula) for index, (a, b) in pairs if a.formula and b.formula)


def _in_order(tape: Tape) -> list[int]:
    # autocast drops its cached weights in the order of their addresses: any order of consecutive frees gives the same
    # sums, so one order is fixed
    order: list[int] = []
    start = 0
    for event in tape.events:
        if event >= 0:
            order[start:] = sorted(order[start:], reverse=True)
            order.append(event)
            start = len(order)
        else:
            order.append(event)
    order[start:] = sorted(order[start:], reverse=True)
    return order


def _ops(tape: Tape) -> list[str]:
    return [block.op for block in tape.blocks]


@dataclass(frozen=True, kw_only=True)
class WorkModel:
    """Floating-point operations and bytes moved by one steady step, operation by operation, as lines in the batch."""

    batches: tuple[int, int]
    works: tuple[tuple[Work, ...], tuple[Work, ...]]

    def at(self, batch: int) -> list[Work]:
        """The operations of one step at `batch`."""
        (small, large), (first, second) = self.batches, self.works

        def line(low: int, high: int) -> int:
            return max(0, low + (high - low) * (batch - small) // (large - small))

        return [
            replace(a, flops=line(a.flops, b.flops), moved_bytes=line(a.moved_bytes, b.moved_bytes))
            for a, b in zip(first, second, strict=False)
        ]
