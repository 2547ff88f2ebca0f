"""The record of a traced step: all allocations and frees of storages in order, and the work of every operation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

# the operations that allocate the buffers in which ranks exchange weights and gradients
GATHER, REDUCE = "fsdp::all_gather_copy_in", "c10d::_reduce_scatter_base_"


class StorageKind(str, Enum):
    """The purpose of a storage; every byte of the peak belongs to exactly one kind."""

    WEIGHTS = "weights"
    GRADIENTS = "gradients"
    OPTIMIZER = "optimizer state"
    ACTIVATIONS = "activations"
    TEMPORARY = "temporary"
    INPUTS = "inputs"


class StepPhase(str, Enum):
    """The part of a training step in which something happened."""

    BUILD = "build"
    INPUTS = "inputs"
    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"
    EVALUATE = "evaluate"


@dataclass(frozen=True, slots=True)
class Formula:
    """A size that is not linear in the batch: a function `of` the dimensions of one call, each of which is linear."""

    of: Callable[..., int]
    dims: tuple[int, ...]


@dataclass(slots=True)
class Storage:
    """One storage: its bytes, the operation, module and phase that made it, and its purpose as found later."""

    size_bytes: int
    op: str
    module: str
    phase: StepPhase
    kind: StorageKind = StorageKind.TEMPORARY
    formula: Formula | None = None
    # for a sum of gradients: the block of its first term
    adds_to: int | None = None
    # whether other ranks hold the rest of the tensor
    is_spread: bool = False


@dataclass(frozen=True, slots=True)
class Work:
    """One operation of a steady step: its floating-point operations, bytes read and written, and arithmetic type."""

    op: str
    dtype: str
    flops: int
    moved_bytes: int
    is_update: bool = False


@dataclass(frozen=True, slots=True)
class Assumption:
    """Something that the trace assumed, with the place in the user's code: 'train.py:41 in step'."""

    text: str
    place: str


@dataclass(slots=True)
class Tape:
    """The record of one run at one batch size.

    `events` has i >= 0 at the allocation of block i and ~i (negative) at its free; `marks` names positions in it.
    """

    batch: int
    blocks: list[Storage] = field(default_factory=list)
    events: list[int] = field(default_factory=list)
    marks: dict[str, int] = field(default_factory=dict)
    work: list[Work] = field(default_factory=list)
    notes: list[Assumption] = field(default_factory=list)
    num_parameters: int = 0

    def peak_bytes(self) -> int:
        """The largest sum of the sizes of living blocks, in requested bytes."""
        living = peak = 0
        for event in self.events:
            living += self.blocks[event].size_bytes if event >= 0 else -self.blocks[~event].size_bytes
            peak = max(peak, living)
        return peak

    def add_in_place(self) -> None:
        """Let a sum of gradients reuse the memory of its first term, if that is freed by the addition.

        Autograd does so if nothing else holds the first term, but not under fake tensors or while operations are
        recorded.
        """
        kept: list[int] = []
        moved: list[int] = []
        same: dict[int, int] = {}
        gone: set[int] = set()
        for position, event in enumerate(self.events):
            moved.append(len(kept))
            if position in gone:
                continue
            if event < 0:
                kept.append(~same.get(~event, ~event))
                continue
            dies = self._dies_now(self.blocks[event], position)
            if dies is None:
                kept.append(event)
            else:
                gone.add(dies)
                same[event] = self._merge(event, same)
        moved.append(len(kept))
        self.events = kept
        self.marks = {name: moved[position] for name, position in self.marks.items()}

    def _dies_now(self, total: Storage, position: int) -> int | None:
        """The position where the first term of the sum `total` is freed, if nothing is allocated before that."""
        first = total.adds_to
        if first is None or self.blocks[first].size_bytes != total.size_bytes:
            return None
        for later in range(position + 1, len(self.events)):
            event = self.events[later]
            if event >= 0:
                return None
            if ~event == first:
                return later
        return None

    def _merge(self, index: int, same: Mapping[int, int]) -> int:
        total = self.blocks[index]
        assert total.adds_to is not None
        first = same.get(total.adds_to, total.adds_to)
        if total.kind is not StorageKind.TEMPORARY:
            self.blocks[first].kind, self.blocks[first].module = total.kind, total.module
        return first
