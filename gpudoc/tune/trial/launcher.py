"""The parent's side of a trial: start it, watch it, end it in time, report how it ended, and clean up."""

from __future__ import annotations

import contextlib
import itertools
import math
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from gpudoc.errors import ExitCode, GpudocError
from gpudoc.process.cgroup import oom_kills
from gpudoc.process.cpu_load import LoadMeter
from gpudoc.process.ending import signal_group
from gpudoc.process.imports import refuse_broken_torch
from gpudoc.profile.model import Allocator, WaitPolicy
from gpudoc.temporary import TemporaryFolder
from gpudoc.tune.trial.deadline import Deadline, TimeUpError
from gpudoc.tune.trial.fork_client import (
    POLL_SECONDS,
    START_SECONDS,
    ForkServerDiedError,
    ForkServerProcess,
    trial_error,
)
from gpudoc.tune.trial.messages import End, How, Measures, Point, Trial, TrialRequest, Variant
from gpudoc.tune.trial.outcome import classify_status
from gpudoc.tune.trial.sweep import clean_up_after_the_dead, sweep_shared_memory
from gpudoc.tune.trial.wire import (
    BatchMeasured,
    Envelope,
    Exited,
    Fact,
    FirstLosses,
    Inspection,
    RankEnd,
    RankPlace,
    TrialStage,
    TrialStart,
    TrialStarted,
    Waiting,
)

SILENCE_SECONDS = 60.0
_TIMED_STAGES = ("speed", "scaling")


class TrialFailedError(GpudocError):
    """A trial failed; the message is the user's own error if that was the cause."""

    def __init__(self, trial: Trial) -> None:
        told = trial_error(trial)
        super().__init__(told.message, hint=told.hint, exit_code=told.exit_code)
        self.trial = trial


class InspectionError(TrialFailedError):
    """The device, or a process on it, failed before a trial could begin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """The device of a trial, its memory limit in bytes, its largest batch, and how long it may be silent, in seconds.

    `silence_s` is the limit for its steps, `most_silence_s` the limit at any stage because of the time that is left.
    """

    device: str
    limit_bytes: int | None
    cap: int = 1 << 31
    silence_s: float = SILENCE_SECONDS
    most_silence_s: float = math.inf
    stop_s: float = 1e9
    deadline: Deadline = field(default_factory=Deadline)


@dataclass(slots=True)
class _Progress:
    points: list[Point] = field(default_factory=list)
    stage: str = "start"
    batch: int | None = None
    ends: dict[int, RankEnd] = field(default_factory=dict)
    statuses: dict[int, int] = field(default_factory=dict)
    measured: Measures = field(default_factory=dict)
    legs: dict[str, tuple[float, ...]] = field(default_factory=dict)
    losses: tuple[float, ...] = ()
    inspection: Inspection | None = None
    group: int = 0
    how: How = "fork"
    waiting: int = 0


class RunningTrial:
    """One trial under way in one or more processes."""

    def __init__(self, warm: ForkServerProcess, request: TrialRequest, where: Where, id_: int, log: Path) -> None:
        self._warm = warm
        self._request = request
        self._where = where
        self._id = id_
        self._log = log
        self._seen = _Progress()
        self._kills = oom_kills()
        self._spent_s = 0.0
        self._started_at = time.time()
        self._meter = LoadMeter()
        self._timing: LoadMeter | None = None

    def start(self, *, inspect: bool = False, began: float | None = None) -> None:
        """Ask for the trial's processes; its time counts from `began`, before a fork server may have been started."""
        place = RankPlace(
            device=self._where.device,
            limit_bytes=self._where.limit_bytes,
            store=str(self._log.with_suffix(".store")),
            orders=str(self._log.with_suffix(".steps")),
            cap=self._where.cap,
            stop_s=self._where.stop_s,
        )
        order = TrialStart(trial=self._id, request=self._request, place=place, log=str(self._log), inspect=inspect)
        self._warm.send(order)
        self._spent_s = 0.0 if began is None else time.monotonic() - began

    @property
    def inspection(self) -> Inspection | None:
        """The result of an inspection."""
        return self._seen.inspection

    def collect(self, *, until_waiting: bool = False) -> Trial | None:
        """Follow the trial to its end; returns None if it rests and waits for `go_on`."""
        start = time.monotonic()
        try:
            end = self._follow(until_waiting)
        except ForkServerDiedError as problem:
            end = (End.SIGNAL, f"the process that starts the trials died: {problem}")
        except BaseException:
            self.kill()
            raise
        finally:
            self._spent_s += time.monotonic() - start
        return None if end is None else self._finish(end)

    def _follow(self, until_waiting: bool) -> tuple[End, str] | None:
        heard = time.monotonic()
        while len(self._seen.statuses) < self._request.ranks:
            told = self._warm.receive(self._id, POLL_SECONDS)
            now = time.monotonic()
            if told is not None:
                heard = now
                self._take(told)
                if until_waiting and self._seen.waiting == self._request.ranks:
                    self._seen.waiting = 0
                    return None
            elif now - heard > min(self._patience_s(), self._where.most_silence_s) and self._seen.group:
                return self._hang(now - heard)
            if not self._where.deadline.left_s:
                return End.TIME_UP, f"the budget ended in {self._seen.stage}"
        return self._judge()

    def snapshot(self) -> Trial:
        """The trial so far, while its processes rest: every batch that it ran fits."""
        seconds = round(self._spent_s, 3)
        return Trial(request=self._request, end=End.FITS, points=tuple(self._seen.points), seconds=seconds)

    @property
    def spent_s(self) -> float:
        """Seconds that the trial ran while it was followed."""
        return self._spent_s

    def go_on(self, steps: int, enough: int = 0) -> None:
        """Let a resting trial continue with the rest of the script and `steps` more steps.

        `enough` of them are sufficient if memory does not change during them; 0 if all must run.
        """
        self._log.with_suffix(".steps").write_text(f"{steps} {enough}")
        signal_group(self._seen.group, signal.SIGUSR1)

    def kill(self) -> None:
        """End the trial's processes at once and wait until they are gone."""
        if not self._seen.group:
            return
        signal_group(self._seen.group)
        with contextlib.suppress(ForkServerDiedError):
            deadline = time.monotonic() + 5.0
            while len(self._seen.statuses) < self._request.ranks and time.monotonic() < deadline:
                told = self._warm.receive(self._id, POLL_SECONDS)
                if told is not None:
                    self._take(told)
        sweep_shared_memory(self._log.parent, self._started_at)

    def _take(self, told: Envelope) -> None:
        seen = self._seen
        match told.event:
            case TrialStarted(group=group, how=how):
                seen.group = group
                seen.how = how
            case TrialStage(stage=stage, batch=batch):
                seen.stage, seen.batch = stage, batch or seen.batch
                if stage in _TIMED_STAGES and self._timing is None:
                    # load from other processes during the build does not affect its steps
                    self._timing = LoadMeter()
            case BatchMeasured(point=point, legs=legs):
                self._take_point(point)
                seen.legs = legs or seen.legs
            case FirstLosses(losses=losses):
                seen.losses = losses
            case Fact(name=name, value=value):
                seen.measured[name] = value
            case Inspection() as found:
                seen.inspection = _of_the_fullest(seen.inspection, found)
            case Waiting():
                seen.waiting += 1
            case RankEnd() as ended:
                seen.ends[told.rank] = ended
                if ended.end is not End.FITS and self._request.ranks > 1:
                    signal_group(seen.group)
            case Exited(status=status):
                seen.statuses[told.rank] = status
                if told.rank not in seen.ends and self._request.ranks > 1:
                    signal_group(seen.group)

    def _take_point(self, point: Point) -> None:
        """Keep the newest point of each batch; every rank reports the same point, which is the worst rank's."""
        known = next((i for i, p in enumerate(self._seen.points) if p.batch == point.batch), None)
        if known is None:
            self._seen.points.append(point)
            return
        self._seen.points[known] = point

    def _judge(self) -> tuple[End, str]:
        seen = self._seen
        failed = next((ended for ended in seen.ends.values() if ended.end is not End.FITS), None)
        if failed is not None:
            return failed.end, failed.detail
        if len(seen.ends) == self._request.ranks:
            return End.FITS, seen.ends[0].detail
        rank = next(rank for rank in seen.statuses if rank not in seen.ends)
        log = self._log.read_text(errors="replace") if self._log.exists() else ""
        return classify_status(seen.statuses[rank], log, lambda: oom_kills() > self._kills)

    def _patience_s(self) -> float:
        """Seconds of silence that mean a hang: more while a model is built, which may read files or import packages."""
        match self._seen.stage:
            case "start":
                return max(START_SECONDS, self._where.silence_s)
            case "build":
                return max(SILENCE_SECONDS, self._where.silence_s)
            case _:
                return self._where.silence_s

    def _hang(self, silent_s: float) -> tuple[End, str]:
        what = f"no sign of life for {silent_s:.0f} s in {self._seen.stage} at batch {self._seen.batch}"
        if silent_s > self._patience_s():
            return End.HANG, what
        return End.TIME_UP, f"{what}, and the budget allows no longer"

    def _finish(self, end: tuple[End, str]) -> Trial:
        self.kill()
        seen = self._seen
        last = next((ended for ended in seen.ends.values() if ended.end is end[0]), RankEnd(end=end[0]))
        trial = Trial(
            request=self._request,
            end=end[0],
            detail=end[1],
            stage="" if end[0] is End.FITS else seen.stage,
            failed_batch=None if end[0] is End.FITS else seen.batch,
            points=tuple(seen.points),
            seconds=round(self._spent_s, 3),
            traceback=last.traceback,
            hint=last.hint,
            exit_code=last.code,
            measured=seen.measured,
            legs=seen.legs,
            losses=seen.losses,
            how=seen.how,
        )
        beside = None if self._timing is None else self._timing.read()
        return trial.beside(beside or self._meter.read(), on_gpu=self._where.device != "cpu")


def _of_the_fullest(known: Inspection | None, found: Inspection) -> Inspection:
    """The inspection of several ranks, each on its own device: only their free memory differs, and the least counts."""
    if known is None or known.card is None or found.card is None:
        return known or found
    return known.model_copy(update={"card": min(known.card, found.card, key=lambda card: card.free_bytes)})


class Launcher:
    """Starts trials in new processes, forked if that is safe; closing it ends everything it started.

    The fork servers of the `expected` variants import at the same time when the first trial is requested; the first
    of them inspects workload and device.
    """

    def __init__(self, source: str, expected: Iterable[Variant] = (), deadline: Deadline | None = None) -> None:
        clean_up_after_the_dead()
        self._source = source
        self._deadline = deadline or Deadline()
        self._has_begun = False
        self._expected = tuple(expected)
        self._first = next(iter(self._expected), Variant())
        self._temporary = TemporaryFolder("tune")
        self._folder = self._temporary.path
        self._warm: dict[tuple[Allocator, WaitPolicy], ForkServerProcess] = {}
        self._ids = itertools.count(1)

    def warm(self, variant: Variant) -> ForkServerProcess:
        """The fork server with this environment, started on first use; GpudocError if the user's code fails."""
        for each in (variant, *self._expected):
            if each.environment not in self._warm:
                is_first = not self._has_begun
                made = ForkServerProcess(self._source, each, self._folder, self._deadline, is_first=is_first)
                self._warm[each.environment] = made
        self._expected = ()
        # wait for all of them, so that none still imports while a trial is timed
        for environment, process in list(self._warm.items()):
            try:
                process.ready  # noqa: B018  waits
            except BaseException:
                del self._warm[environment]
                raise
        self._has_begun = True
        return self._warm[variant.environment]

    def start(self, request: TrialRequest, where: Where, *, inspect: bool = False) -> RunningTrial:
        """Start a trial and return it while it runs; a fork server that died is replaced once."""
        id_ = next(self._ids)
        log = self._folder / f"trial-{id_}.log"
        began = time.monotonic()
        for attempt in (1, 2):
            try:
                running = RunningTrial(self.warm(request.variant), request, where, id_, log)
                running.start(inspect=inspect, began=began)
                return running
            except ForkServerDiedError as problem:
                died = self._warm.pop(request.variant.environment, None)
                if died is not None:
                    died.close()
                if attempt == 2:
                    refuse_broken_torch()
                    raise GpudocError(f"the trials cannot be started: {problem}", exit_code=ExitCode.FAULT) from None
        raise AssertionError("unreachable")

    def run(self, request: TrialRequest, where: Where) -> Trial:
        """Run a trial from start to end; it ends with the budget at the latest."""
        began = time.monotonic()
        try:
            trial = self.start(request, where).collect()
        except TimeUpError as problem:
            seconds = round(time.monotonic() - began, 3)
            return Trial(request=request, end=End.TIME_UP, detail=problem.message, stage="start", seconds=seconds)
        assert trial is not None
        return trial

    @property
    def no_fork(self) -> str:
        """Why trials start as new programs instead of forks; empty if they are forked."""
        return self.warm(self._first).ready.no_fork

    def inspect(self, where: Where, ranks: int = 1) -> Inspection:
        """Facts about the workload and the device (of several, the fullest); GpudocError with the user's own error."""
        request = TrialRequest(kind="calibrate", batches=(1,), variant=self._first, ranks=ranks)
        running = self.start(request, where, inspect=True)
        trial = running.collect()
        assert trial is not None
        if trial.end is End.TIME_UP:
            raise TimeUpError(f"the device was not examined when {where.deadline.told}", hint=where.deadline.hint)
        if running.inspection is None or not trial.fits:
            raise InspectionError(trial)
        return running.inspection

    def close(self) -> None:
        """End every process and remove the temporary folder."""
        for warm in self._warm.values():
            warm.close()
        self._warm.clear()
        self._temporary.close()

    def __enter__(self) -> Launcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
