"""`train -- COMMAND`: runs the command with the settings that tune found; says where time went, and why it died."""

from __future__ import annotations

import dataclasses
import os
import select
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from gpudoc.errors import ExitCode, GpudocError
from gpudoc.process.cgroup import oom_kills
from gpudoc.script import hook
from gpudoc.script.apply import Applied
from gpudoc.script.hang import HangWatch
from gpudoc.script.hook import EventReader, ProcessSeen
from gpudoc.script.process import CommandProcess, Terms
from gpudoc.script.relay import OutputRelay, on_terminal
from gpudoc.script.signals import Signals
from gpudoc.temporary import TemporaryFolder

if TYPE_CHECKING:
    from gpudoc.doctor.model import Report
    from gpudoc.train.events import Hung

# processes that outlive the command are asked to end, and killed after this time
LEFT_S = 10.0
_TICK_S = 0.1
_LOOK_S = 1.0
# samples/s is an average over this many seconds
_WINDOW_S = 10.0


class RunListener(Protocol):
    """Gets output, lines and status of a run while it goes on."""

    def output(self, number: int, data: bytes) -> None:
        """Output that the command wrote to its stdout (1) or stderr (2)."""

    def say(self, text: str) -> None:
        """A permanent line of gpudoc itself."""

    def status(self, status: Status) -> None:
        """The progress of the run, about once a second from the first step on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The progress of a run over all of its ranks; values that the script does not show are None.

    `seconds` since the start; samples/s and the share of waiting for data over the last 10 seconds.
    """

    seconds: float
    ranks: int
    steps: int
    samples_per_s: float | None
    wait_share: float | None
    peak_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTimes:
    """Where the time of a run went, in seconds, for the rank with the most steps.

    `start` until the first request for a batch, `data_wait` for batches, `evaluate` with another loader, `steps` for
    the rest up to the last step, `end` after the last step.
    """

    start: float
    data_wait: float
    steps: float
    evaluate: float
    end: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd:
    """How a run ended: `code` as in subprocess; values that the script does not show are None or empty.

    `interrupted`: by Ctrl+C, or by a signal that gpudoc received and passed on. The processes in `left` outlived the
    command and were killed; those in `stuck` cannot be killed. `hangs` are hangs that ended by themselves, and
    `ended_for` is the hang for which gpudoc ended the run.
    """

    code: int
    interrupted: bool
    seconds: float
    seen: tuple[ProcessSeen, ...]
    applied: Applied
    status: Status | None = None
    split: RunTimes | None = None
    left: tuple[str, ...] = ()
    stuck: tuple[str, ...] = ()
    report: Report | None = None
    kernel_killed: bool = False
    hangs: tuple[Hung, ...] = ()
    ended_for: Hung | None = None

    @property
    def exit_code(self) -> int:
        """The command's exit code, 128 + N if signal N ended it; 1 if gpudoc ended it because of a hang."""
        if self.ended_for is not None:
            return int(ExitCode.BAD_ANSWER)
        return 128 - self.code if self.code < 0 else self.code

    @property
    def ranks(self) -> tuple[ProcessSeen, ...]:
        """The processes that trained."""
        return tuple(seen for seen in self.seen if seen.trains)


def run(applied: Applied, listener: RunListener, *, all_to_stderr: bool = False, on_hang: str = "report") -> RunEnd:
    """Run the command to its end; GpudocError if it cannot be started.

    A hang is reported, and with `on_hang` 'end' the command is also ended.
    """
    with TemporaryFolder("run") as folder:
        watching = _Watching(folder, listener, HangWatch(folder, on_hang))
        environment = hook.environment(folder, applied.order, {**os.environ, **applied.environment})
        through = OutputRelay(listener.output, all_to_stderr=all_to_stderr)
        kills = oom_kills()
        try:
            with Signals(listener.say) as signals:
                terms = Terms(
                    environment=environment,
                    streams=(0, through.stdout, through.stderr),
                    own_session=not on_terminal(),
                    patience_s=LEFT_S,
                )
                kept = _follow(applied.words, terms, through, signals, watching)
        finally:
            through.close()
        # the exit code is unknown if the command was killed at once
        at_once = signal.SIGINT if signals.interrupts else signal.SIGKILL
        code = -at_once if kept.code is None else kept.code
        finished = RunEnd(
            code=code,
            interrupted=signals.interrupts > 0 or -code in signals.handed_on,
            hangs=tuple(watching.standing.over),
            ended_for=watching.standing.ended_for,
            seconds=watching.seconds,
            seen=watching.seen,
            applied=applied,
            status=watching.last(),
            split=watching.split(),
            left=kept.left,
            stuck=kept.stuck,
            kernel_killed=kept.code == -signal.SIGKILL and oom_kills() > kills,
        )
        return dataclasses.replace(finished, report=_cause(finished, through.tail()))


def _follow(
    words: Sequence[str], terms: Terms, through: OutputRelay, signals: Signals, watching: _Watching
) -> CommandProcess:
    """Start the command and follow it until it and all processes that it started have ended."""
    kept = CommandProcess(words, terms)
    through.started()
    ending = _Ending(kept)
    try:
        while True:
            ready = select.select([*through.fileno_list(), kept.fileno()], [], [], _TICK_S)[0]
            through.copy(ready)
            signals.hand_on(kept)
            if kept.fileno() in ready and not kept.hear():
                break
            through.resize()
            watching.look()
            if watching.standing.ended_for is not None and ending.is_over():
                break
    except BaseException:
        kept.end()
        raise
    finally:
        watching.standing.close()
    kept.wait()
    through.drain()
    kept.close()
    watching.look(at_the_end=True)
    if kept.code is None and signals.interrupts < 2 and watching.standing.ended_for is None:
        raise kept.refusal()
    return kept


@dataclass(slots=True)
class _Ending:
    """Ends a command that hangs: SIGTERM first, then, after `LEFT_S` seconds, all of its processes are ended."""

    kept: CommandProcess
    _until: float | None = None

    def is_over(self) -> bool:
        """Whether the command ignored SIGTERM until its time was over and has now been ended."""
        if self._until is None:
            self._until = time.monotonic() + LEFT_S
            self.kept.signal(signal.SIGTERM)
        if time.monotonic() < self._until:
            return False
        self.kept.end()
        return True


class _Watching:
    """The reports of the command's processes, read about once a second."""

    def __init__(self, folder: Path, listener: RunListener, standing: HangWatch) -> None:
        self.standing = standing
        self._reader: EventReader | None = EventReader(folder, keep_steps=False)
        self._listener = listener
        self._began, self._began_at = time.monotonic(), time.time()
        self._looked_s = 0.0
        # seconds, samples (-1 if unknown) and seconds of waiting at the last looks
        self._history: list[tuple[float, int, float]] = []
        self.seen: tuple[ProcessSeen, ...] = ()
        self.seconds = 0.0

    def look(self, *, at_the_end: bool = False) -> None:
        self.seconds = time.monotonic() - self._began
        for line in self.standing.said():
            self._listener.say(line)
        if self._reader is None or (self.seconds - self._looked_s < _LOOK_S and not at_the_end):
            return
        self._looked_s = self.seconds
        try:
            self.seen = self._reader.read()
        except GpudocError as problem:
            # the run goes on without being watched
            self._reader = None
            self._listener.say(f"no longer watched: {problem.message}")
            return
        if self._trains() and not at_the_end:
            self._remember()
            self._listener.status(self.status())

    def status(self) -> Status:
        ranks = self._trains()
        totals = [seen.total for seen in ranks]
        peaks = [peak for seen in ranks if (peak := seen.steps[-1].peak_bytes) is not None]
        samples_per_s, wait_share = self._recently()
        return Status(
            seconds=self.seconds,
            ranks=len(ranks),
            steps=max((total.steps for total in totals), default=0),
            samples_per_s=samples_per_s,
            wait_share=wait_share,
            peak_bytes=max(peaks, default=None),
        )

    def last(self) -> Status | None:
        """The status over the whole run; None if nothing trained."""
        if not self._trains():
            return None
        self._history = []
        self._remember()
        return self.status()

    def split(self) -> RunTimes | None:
        """Where the time went; None if nothing trained."""
        lead = max(self._trains(), key=lambda seen: seen.total.steps, default=None)
        if lead is None:
            return None
        total, end_at = lead.total, lead.steps[-1].at - self._began_at
        start = max(0.0, end_at - total.seconds)
        return RunTimes(
            start=start,
            data_wait=total.wait_s,
            steps=max(0.0, total.seconds - total.wait_s - total.evaluate_s),
            evaluate=total.evaluate_s,
            end=max(0.0, self.seconds - start - total.seconds),
        )

    def _trains(self) -> list[ProcessSeen]:
        return [seen for seen in self.seen if seen.trains]

    def _remember(self) -> None:
        totals = [seen.total for seen in self._trains()]
        known = all(total.samples is not None for total in totals)
        samples = sum(total.samples or 0 for total in totals) if known else -1
        row = (sum(t.seconds for t in totals) / len(totals), samples, sum(t.wait_s for t in totals) / len(totals))
        self._history = [old for old in self._history if row[0] - old[0] <= _WINDOW_S]
        self._history.append(row)

    def _recently(self) -> tuple[float | None, float | None]:
        first = self._history[0] if len(self._history) > 1 else (0.0, 0, 0.0)
        last = self._history[-1] if self._history else first
        seconds = last[0] - first[0]
        if seconds <= 0:
            return None, None
        rate = (last[1] - first[1]) / seconds if last[1] >= 0 <= first[1] else None
        return rate, (last[2] - first[2]) / seconds


def _cause(finished: RunEnd, log: str) -> Report | None:
    """Doctor's report on a command that failed; None if it did not fail."""
    if finished.code == 0 or finished.interrupted or finished.ended_for is not None:
        return None
    # these imports take half a second, which a successful run does not need
    from gpudoc.doctor.live.judge import judge_end
    from gpudoc.facts.live.job import CommandOutcome

    end = CommandOutcome(
        exit_code=None if finished.code < 0 else finished.code,
        signal=-finished.code if finished.code < 0 else None,
        log=log,
        watch=None,
        seconds=finished.seconds,
    )
    return judge_end(None, end)
