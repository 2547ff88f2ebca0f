"""What a look at a script saw, what could be changed there, and the claim that a change may have."""

from __future__ import annotations

import enum
from pathlib import Path

from gpudoc.frozen import dataclass


def name_of(path: Path) -> str:
    """A path for people: relative to the folder in which fix was started, if it lies below that."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


class Claim(enum.Enum):
    """How much of a training stays as it was, according to the records of both sides; from best to worst."""

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
    """A line of the script that runs in its steps, and the share of a step that it takes, 0 to 1."""

    file: Path
    line: int
    share: float


@dataclass(frozen=True, slots=True)
class PaddedInput:
    """A line that calls the model, and the share of the input that is padding beyond the longest of the batch."""

    file: Path
    line: int
    share: float
    value: int | None = None
    """The whole number that it is padded with; None where there are several, and for features."""


@dataclass(frozen=True, slots=True)
class RunEvidence:
    """What one run of the unchanged script showed."""

    hot: tuple[HotLine, ...]
    """By share, the largest first."""
    own: tuple[HotLine, ...] = ()
    """The same without the time of other lines of the script that a line calls."""
    passes: tuple[tuple[Path, int, float], ...] = ()
    """How often a line runs in a step, for the functions that hold a hot line; empty where that was not counted."""
    padded: tuple[PaddedInput, ...] = ()
    """By share, the largest first; only where it is a good part."""
    died_at: HotLine | None = None
    """The line of the script where it ran out of memory."""
    growth_bytes: float | None = None
    """Memory that a step leaves behind, in bytes; None where it was not measured."""
    num_workers: int | None = None
    """How many workers loading needs to keep up with a step, by the look; None where no step waits for it."""
    loader_line: tuple[Path, int] | None = None
    """Where the script makes the DataLoader that its steps wait for."""
    anomaly_detection: bool = False
    cuda: bool = False
    keeps_at: tuple[tuple[Path, int], ...] = ()
    """The lines that keep what a step leaves behind, the largest first; empty where none was found."""
    no_backward_at: tuple[tuple[Path, int], ...] = ()
    """Lines that made an autograd graph which no backward reached before it died."""
    fragmented: bool = False
    """CUDA memory ran out while the allocator held enough of it in pieces that were too small."""
    worker_start_share: float | None = None
    """The share of an epoch that starting the loader's workers takes, 0 to 1; None where it was not measured."""
    threads: int | None = None
    """How many threads torch computed with, where the process left cores idle that it may use; else None."""

    float64_share: float | None = None
    """The share of a step in kernels of double precision, 0 to 1; None where it was not measured."""

    evaluated_after: int | None = None
    """How many steps had run when the first evaluation began; None where the steps came to none."""
    evaluation_grows: bool = False
    """The first evaluation took clearly more memory than the steps before it."""
    awaits_evaluation: bool = False
    """The source evaluates, and the steps did not come to it."""

    def lines_in(self, file: Path, *, least: float = 0.05) -> tuple[HotLine, ...]:
        """The hot lines of `file` that take at least `least` of a step, the largest first."""
        return tuple(line for line in self.hot if line.file == file and line.share >= least)


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
    environment: tuple[tuple[str, str], ...] = ()
    """Variables to start the command with; where there are some, `after` is `before`."""
    other_batches: bool = False
    """Whether batches hold the same samples in another shape, so that their digests say nothing."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A rewrite that fits the place but would be wrong there, with the reason as a sentence."""

    rewrite: str
    file: Path
    line: int
    reason: str
