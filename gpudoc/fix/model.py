"""What a look at a script saw, what could be changed there, and how much a change may be called."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path


class Claim(enum.Enum):
    """How much of a training stays as it was, by what was recorded on both sides; from the best to the worst."""

    EXACT = "exact"
    """Losses, batches, parameters, optimizer state and generators are equal bit by bit."""
    ROUNDING = "rounding"
    """Only sums were taken in another order: within what the script differs from itself by."""
    BEHAVIOUR = "behaviour"
    """The losses are equal; something else that was asked for is not, for example fewer checkpoints."""
    CHANGES = "changes"
    """The training is another one: such a change is shown and never written."""


@dataclass(frozen=True, slots=True)
class HotLine:
    """A line of the script inside of its steps, and the share of a step that it takes, 0 to 1."""

    file: Path
    line: int
    share: float


@dataclass(frozen=True, slots=True)
class Evidence:
    """What one run of the unchanged script showed."""

    hot: tuple[HotLine, ...]
    """By share, the largest first."""
    died_at: HotLine | None = None
    """The line of the script where it ran out of memory."""
    growth_bytes: float | None = None
    """Memory that a step leaves behind, in bytes; None where it was not measured."""
    num_workers: int | None = None
    """What the loader's search chose; None where nothing was gained or searched."""
    loader_line: tuple[Path, int] | None = None
    """Where the script makes the DataLoader that its steps wait for."""
    anomaly_detection: bool = False
    cuda: bool = False


@dataclass(frozen=True, slots=True)
class Candidate:
    """One rewrite at one place: the whole text of the file before and after."""

    rewrite: str
    file: Path
    line: int
    claim: Claim
    """The best that it may be called; the proof can only lower it."""
    before: str
    after: str
    besides: tuple[str, ...] = ()
    """What changes besides, in sentences: a file fewer, another order."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A rewrite that fits the place and would be wrong there, with the reason as a sentence."""

    rewrite: str
    file: Path
    line: int
    reason: str
