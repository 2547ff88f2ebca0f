"""The order of samples, a pure function of (seed, epoch, position): resume needs only one number, the step.

Workers, the micro batch and the number of ranks do not change the order.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from gpudoc.errors import GpudocError

if TYPE_CHECKING:
    # code that only computes with batches need not import torch
    import torch

_MASK = (1 << 64) - 1
# the samples of a stream without a length: it has one epoch, which no run completes
ENDLESS = 1 << 62


class Chunk(NamedTuple):
    """One micro batch: which samples of which epoch. A weightless one only keeps a rank in step with the others."""

    step: int
    epoch: int
    position: int
    indices: tuple[int, ...]
    last: bool
    weightless: bool = False


@dataclass(frozen=True, kw_only=True)
class Order:
    """The samples of every step on one rank; steps count from 0, each consumes one global batch."""

    num_samples: int
    global_batch: int
    micro_batch: int
    seed: int
    rank: int = 0
    world: int = 1
    shuffled: bool = True
    _permutations: dict[int, array[int]] = field(default_factory=dict, compare=False, repr=False)

    @property
    def is_endless(self) -> bool:
        """Whether the samples are a stream without a length."""
        return self.num_samples == ENDLESS

    @cached_property
    def steps_per_epoch(self) -> int:
        """Optimizer steps in one pass over the data; the last one may be smaller."""
        return -(-self.num_samples // self.global_batch)

    def with_micro_batch(self, micro_batch: int) -> Order:
        """The same order with smaller or larger micro batches."""
        return replace(self, micro_batch=micro_batch)

    def span(self, step: int) -> tuple[int, int, int]:
        """(epoch, first position, end position) of a step's global batch."""
        epoch, inside = divmod(step, self.steps_per_epoch)
        start = inside * self.global_batch
        return epoch, start, min(start + self.global_batch, self.num_samples)

    def samples_before(self, step: int) -> int:
        """Samples that all ranks together consumed before `step`."""
        epoch, start, _ = self.span(step)
        return epoch * self.num_samples + start

    def samples_in(self, step: int) -> int:
        """Samples in the step's global batch."""
        _, start, end = self.span(step)
        return end - start

    def chunks(self, step: int) -> list[Chunk]:
        """This rank's micro batches of a step: the same number on every rank, the last ones smaller or weightless."""
        epoch, start, end = self.span(step)
        if self.world == 1 and end - start <= self.micro_batch:
            return [Chunk(step, epoch, start, self.indices(epoch, start, end), True)]
        share, extra = divmod(end - start, self.world)
        first = start + self.rank * share + min(self.rank, extra)
        mine = range(first, first + share + (self.rank < extra))
        most = -(-(end - start) // self.world)
        count = -(-most // self.micro_batch)
        made = []
        for number in range(count):
            part = mine[number * self.micro_batch : (number + 1) * self.micro_batch]
            weightless = not part
            positions = part or range(start, start + 1)
            indices = self.indices(epoch, positions.start, positions.stop)
            made.append(Chunk(step, epoch, positions.start, indices, number == count - 1, weightless))
        return made

    def walk(self, first: int, end: int) -> Iterator[Chunk]:
        """This rank's micro batches of the steps [first, end)."""
        for step in range(first, end):
            yield from self.chunks(step)

    def indices(self, epoch: int, start: int, end: int) -> tuple[int, ...]:
        """The data set's indices at the positions [start, end) of an epoch."""
        if not self.shuffled:
            return tuple(range(start, end))
        if epoch not in self._permutations:
            self._shuffle(epoch)
        return tuple(self._permutations[epoch][start:end])

    def _shuffle(self, epoch: int) -> None:
        # the loader reads ahead into the next epoch while a rescue may still need this one; older permutations are
        # freed before a new one is created, so that no epoch takes more memory than the second
        for old in [known for known in self._permutations if known < epoch - 1]:
            del self._permutations[old]
        import torch

        generator = torch.Generator().manual_seed(sample_seed(self.seed, epoch, -1))
        self._permutations[epoch] = _compact(torch.randperm(self.num_samples, generator=generator))


def _compact(drawn: torch.Tensor) -> array[int]:
    """The numbers at 4 bytes each (8 beyond 2^31), sliced 3 µs faster than a tensor; a list would take 36."""
    import torch

    code, dtype = ("i", torch.int32) if len(drawn) < 1 << 31 else ("q", torch.int64)
    # written in place: a temporary copy would make the heap grow at a memory limit
    found = array(code, (0,)) * len(drawn)
    torch.frombuffer(found, dtype=dtype).copy_(drawn)
    return found


def sample_seed(seed: int, epoch: int, position: int) -> int:
    """A 63-bit seed for one sample position, well mixed (splitmix64), so that neighbours share no pattern."""
    value = (seed * 0x9E3779B97F4A7C15 + epoch * 0xBF58476D1CE4E5B9 + (position + 2) * 0x94D049BB133111EB) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return (value ^ (value >> 31)) >> 1


def accumulation(global_batch: int, micro_batch: int, world: int) -> int:
    """Micro batches per step on the busiest rank."""
    per_rank = -(-global_batch // world)
    return -(-per_rank // micro_batch)


def auto_global_batch(*, reference: int, micro_batch: int, world: int, num_samples: int) -> int:
    """The global batch for `auto`: the samples that the devices hold at once, but at least the reference batch, at most
    8 times that, and at most a fiftieth of the data set."""
    if num_samples < 1:
        raise GpudocError("the data set is empty")
    most = min(8 * reference, num_samples // 50)
    return min(max(reference, min(micro_batch * world, most)), num_samples)
