"""What a traced step left behind: every storage's birth and death in order, and the work of every operation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum


class Kind(str, Enum):
    """What a storage is for; every byte of the peak belongs to exactly one kind."""

    WEIGHTS = "weights"
    GRADIENTS = "gradients"
    OPTIMIZER = "optimizer state"
    ACTIVATIONS = "activations"
    TEMPORARY = "temporary"
    INPUTS = "inputs"


class Phase(str, Enum):
    """The part of a training step in which something happened."""

    BUILD = "build"
    INPUTS = "inputs"
    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"
    EVALUATE = "evaluate"


@dataclass(frozen=True, slots=True)
class Formula:
    """A size that is no line in the batch: `of` the dimensions of one call, each of which is one."""

    of: Callable[..., int]
    dims: tuple[int, ...]


@dataclass(slots=True)
class Block:
    """One storage: its bytes, the operation, module and phase that made it, and what it turned out to be for."""

    size_bytes: int
    op: str
    module: str
    phase: Phase
    kind: Kind = Kind.TEMPORARY
    formula: Formula | None = None


@dataclass(frozen=True, slots=True)
class Work:
    """One operation of a steady step: its floating-point operations, bytes read and written, and arithmetic type."""

    op: str
    dtype: str
    flops: int
    moved_bytes: int


@dataclass(frozen=True, slots=True)
class Note:
    """Something that the trace assumed, with the place in the user's code: 'train.py:41 in step'."""

    text: str
    place: str


@dataclass(slots=True)
class Tape:
    """The life of one run at one batch size.

    `events` holds i >= 0 where block i is allocated and ~i (negative) where it is freed; `marks` names positions in it.
    """

    batch: int
    blocks: list[Block] = field(default_factory=list)
    events: list[int] = field(default_factory=list)
    marks: dict[str, int] = field(default_factory=dict)
    work: list[Work] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    num_parameters: int = 0

    def peak_bytes(self) -> int:
        """The largest sum of the sizes of living blocks, in the bytes that were asked for."""
        living = peak = 0
        for event in self.events:
            living += self.blocks[event].size_bytes if event >= 0 else -self.blocks[~event].size_bytes
            peak = max(peak, living)
        return peak
