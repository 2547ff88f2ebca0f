"""Launches of a script for `fix`, each in a cell: looks at the script, and recorded runs with changed files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from gpudoc.patterns import Pattern
from gpudoc.process.shortage import Shortage
from gpudoc.script.look import blocks, steady
from gpudoc.script.messages import HookOrder, StateRecord
from gpudoc.script.outcome import LaunchRecord
from gpudoc.script.trial import WARM_STEPS, Launches

# makes launches repeatable as far as Python allows
_ALIKE: Mapping[str, str] = {"PYTHONHASHSEED": "0"}
# on Linux the heap then returns freed memory from this size on: only so does a look see what a step leaves behind, and
# only so do some scripts fit into memory; it makes steps slower
GIVES_BACK: Mapping[str, str] = {"MALLOC_MMAP_THRESHOLD_": "262144"}
_LOOK_STEPS = 24
# the direction in which a control run moves each initial weight by its last bit
Nudge = Literal["up", "down", "out", "in"]
# the least steps that give a speed; the number of pieces of a launch that show how its speed varies
_LEAST_TIMED, _PIECES = 4, 4
_NUMBER = Pattern(r"\d+(?:[.,:]\d+)*(?:e[-+]?\d+)?")
# times of minutes are written differently from times of seconds, and progress bars grow
_TIMES = Pattern(r"#(?:\s*(?:h|m|s|ms|min|sec|seconds|minutes)\b[\s,]*#?)+")
# a warning as Python prints it, and with its numbers masked
_MOST_OF_WARNING = 6
WARNED = Pattern(r"^\S.*\.py:(?:\d+|#): \w*Warning: ")
_BAR = Pattern(r"[█▏▎▍▌▋▊▉━╸╺]+[█▏▎▍▌▋▊▉━╸╺ ]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRun:
    """One recorded run: its record, the seconds of its steps without the recording, its peak, and its output.

    `seconds` counts the last `timed` steps, which have no digests of batches; 0: all steps.
    `shortage` is the memory that ran out; `failure` the last line of the output if it failed otherwise; `timed_out`: it
    did not reach its steps in time; `ended`: the script reached its own end. `numbers` are the numbers that it printed.
    """

    record: StateRecord | None
    batches: tuple[str, ...]
    steps: int
    seconds: float
    peak_bytes: int | None
    printed: tuple[str, ...]
    ended: bool
    numbers: tuple[str, ...] = ()
    shortage: Shortage | None = None
    failure: str = ""
    timed_out: bool = False
    timed: int = 0
    digested: int | None = None
    pieces_s: tuple[float, ...] = ()

    @property
    def step_s(self) -> float:
        """Seconds per step, including the time between steps."""
        return self.seconds / max(1, self.timed or self.steps)


@dataclass(frozen=True, slots=True)
class RoundingOrder:
    """`nudge` moves the initial weights of a run by their last bit, with `single` by that of single precision."""

    nudge: Nudge | Literal[""] = ""
    single: bool = False


@dataclass(slots=True, kw_only=True)
class FixLaunches:
    """Starts the script for looks and recorded runs; `files` are the changes accepted so far."""

    launches: Launches
    files: dict[Path, bytes] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)

    @contextmanager
    def limited_to(self, limit_bytes: int | None) -> Iterator[None]:
        """Launch under another memory limit than the one that the user asked for."""
        asked, self.launches.memory_limit_bytes = self.launches.memory_limit_bytes, limit_bytes
        try:
            yield
        finally:
            self.launches.memory_limit_bytes = asked

    def look(self, *, seconds: float, evaluation_s: float, patience_s: float) -> LaunchRecord:
        """Launch the script with the accepted changes for `seconds` of its steps, and find its busiest lines.

        If its source evaluates, the look goes on until the steps reach an evaluation, for up to `evaluation_s`.
        """
        order = HookOrder(
            purpose="look", warm_steps=WARM_STEPS, steps=_LOOK_STEPS, seconds=seconds, evaluation_s=evaluation_s,
            lines=True,
        )  # fmt: skip
        return self._launch(order, patience_s, {}, GIVES_BACK)

    def run(
        self,
        steps: int | None,
        *,
        patience_s: float,
        files: Mapping[Path, bytes] | None = None,
        environment: Mapping[str, str] | None = None,
        rounding: RoundingOrder | None = None,
        digested: int | None = None,
    ) -> RecordedRun:
        """A recorded run of `steps` steps, or to the script's end, with these changes on top of the accepted ones.

        The batches of the first `digested` steps are digested (None: of all steps); later steps give the speed.
        """
        asked = rounding or RoundingOrder()
        order = HookOrder(
            purpose="trial", steps=steps, record=True, record_samples=True, digest_steps=digested, nudge=asked.nudge,
            single=asked.single,
        )  # fmt: skip
        told = self._launch(order, patience_s, files or {}, environment or {})
        return run_of(told, digested)

    def _launch(
        self, order: HookOrder, patience_s: float, files: Mapping[Path, bytes], more: Mapping[str, str]
    ) -> LaunchRecord:
        return self.launches.recorded(
            order,
            patience_s=patience_s,
            files={**self.files, **files},
            more={**_ALIKE, **self.environment, **more},
        )


def run_of(told: LaunchRecord, digested: int | None = None) -> RecordedRun:
    """The recorded run from the reports of the process that trained."""
    trained = [one for one in told.seen if one.trains]
    first = trained[0] if trained else None
    record = None if first is None else first.record
    stretch = None if first is None else steady(first, WARM_STEPS)
    steps = 0 if stretch is None else len(stretch.step_s)
    # steps with digests would take longer
    step_s = () if stretch is None else stretch.step_s[max(0, (digested or 0) - WARM_STEPS) :]
    step_s = step_s if len(step_s) >= _LEAST_TIMED else () if stretch is None else stretch.step_s
    taken_s = 0.0 if record is None else record.seconds / max(1, record.steps)
    pieces_s = [_without(taken_s, [one]) for one in blocks(step_s, _PIECES)] if step_s else []
    error = told.error
    shortage = error.shortage if error is not None else None
    failure = ""
    if shortage is None and not told.timed_out and told.status not in (None, 0):
        last = [line.strip() for line in told.tail.splitlines() if line.strip()]
        failure = last[-1] if last else "it failed"
    peaks = [event.peak_bytes for event in (first.steps if first else ()) if event.peak_bytes is not None]
    return RecordedRun(
        record=record,
        batches=tuple(digest for event in (first.steps if first else ()) for digest in event.digests),
        steps=steps,
        seconds=_without(taken_s, step_s),
        peak_bytes=max(peaks, default=None),
        printed=masked(told.tail),
        numbers=numbers_in(told.tail),
        ended=told.status == 0,
        shortage=shortage,
        failure=failure,
        timed_out=told.timed_out,
        timed=len(step_s),
        digested=digested if len(step_s) < steps else None,
        pieces_s=tuple(pieces_s),
    )


def _without(taken_s: float, step_s: Sequence[float]) -> float:
    """Seconds of these steps without `taken_s` of each, at least half of the total: a smaller rest would be noise."""
    total_s = sum(step_s)
    return max(1e-9, total_s / 2, total_s - taken_s * len(step_s))


def numbers_in(text: str) -> tuple[str, ...]:
    """The numbers of an output, in their order, without those of warnings."""
    lines = [line for line in _lines(text) if not WARNED.search(line)]
    return tuple(number for line in lines for number in _NUMBER.findall(line))


def masked(text: str) -> tuple[str, ...]:
    """The lines of an output without parts that differ from run to run: numbers, durations, the length of bars."""
    lines = [" ".join(_TIMES.sub("#", _NUMBER.sub("#", line)).split()) for line in _lines(text)]
    return tuple(line for line in lines if line)


def _lines(text: str) -> Iterator[str]:
    """The lines as a terminal shows them at the end, with bars of one length, and only the first line of a warning."""
    lines = [_BAR.sub("=", raw.rstrip("\r").rpartition("\r")[2]) for raw in text.split("\n")]
    at = 0
    while at < len(lines):
        yield lines[at]
        behind = lines[at + 1 : at + 1 + _MOST_OF_WARNING] if WARNED.search(lines[at]) else []
        # a warning ends with its line of code
        at += 1 + next((n for n, line in enumerate(behind, 1) if line.startswith("  ")), 0)
