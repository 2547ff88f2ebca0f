"""Runners of a search's trials, and how long trials take: one protocol, and a workload's runner."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from gpudoc.errors import GpudocError
from gpudoc.profile.model import Allocator, WaitPolicy
from gpudoc.stats import median
from gpudoc.tune.trial.deadline import Deadline, TimeUpError
from gpudoc.tune.trial.fork_client import trial_error
from gpudoc.tune.trial.launcher import SILENCE_SECONDS, Launcher, RunningTrial, TrialFailedError, Where
from gpudoc.tune.trial.messages import RUNS, End, Point, Trial, TrialRequest, Variant

# the optimizer's state comes with the first step, the full peak with the second, a settled heap with the third
FIT_STEPS = 3
_SILENCE_FACTOR = 20.0
_TIMED_AT_ONE_BATCH = ("default", "variant", "joint")
# kinds of trials for which only a fit is an answer
_MUST_FIT = ("calibrate", "fit", "steady")
# code that fails in a trace may still run, so the failure is not blamed on the user's code
_UNPLANNED: Mapping[str, object] = {"end": End.SIGNAL, "traceback": ""}


class Runner(Protocol):
    """Runs trials on one device under one limit: a workload in gpudoc's own processes, or a command with the hook."""

    @property
    def device(self) -> str:
        """'cpu', or the GPU as torch names it."""

    @property
    def ranks(self) -> int:
        """Processes that every trial has."""

    @property
    def limit_bytes(self) -> int | None:
        """The memory that a trial may have; None if unknown."""

    @property
    def samples_per_s(self) -> float | None:
        """Samples per second of one rank in the last trial that measured it; None before the first."""

    @property
    def overhead_s(self) -> float:
        """Seconds of a typical trial without the time for its batch; 0 while unknown."""

    @property
    def fit_steps(self) -> int:
        """Steps after which memory has shown its peak."""

    @property
    def reference(self) -> int | None:
        """The batch to start from if each batch is a launch; None if one process runs larger and larger batches."""

    def cost_s(self, request: TrialRequest) -> float:
        """Seconds until the trial has ended with all its processes; 0 if unknown."""

    def run(self, request: TrialRequest, deadline: Deadline, *, left_s: float, most_s: float | None = None) -> Trial:
        """Run the trial until the deadline at most; `left_s` is left of the budget, `most_s` limits this trial."""

    def learn(self, trial: Trial) -> None:
        """Update the expected times from a finished trial."""

    def error_of(self, trial: Trial, base: Variant, left_s: float) -> GpudocError | None:
        """The error that ends the search after this trial; None if its failure is an answer."""

    def release(self) -> None:
        """End the processes that rest between two trials."""


class VariantFailedError(TrialFailedError):
    """A trial failed under a variant that the user did not ask for, so that the search can go on without it."""


@dataclass(slots=True, kw_only=True)
class WorkloadRunner:
    """Runs the trials of one workload; satisfies `Runner`.

    A fit on a CPU leaves its process resting, so that a longer run at that batch continues in it. `start_s` is the time
    to start a process with another environment.
    """

    launcher: Launcher
    where: Where
    ranks: int = 1
    start_s: float = 0.0
    samples_per_s: float | None = None
    fit_steps: int = FIT_STEPS
    reference: None = None
    _resting: tuple[tuple[int, Variant], RunningTrial] | None = None
    _overheads_s: list[float] = field(default_factory=list)
    _seen: dict[Variant, Point] = field(default_factory=dict)
    _warm: set[tuple[Allocator, WaitPolicy]] = field(default_factory=lambda: {Variant().environment})

    @property
    def device(self) -> str:
        """The device of the trials."""
        return self.where.device

    @property
    def limit_bytes(self) -> int | None:
        """The memory of one rank."""
        return self.where.limit_bytes

    @property
    def overhead_s(self) -> float:
        """Seconds outside the timed steps: starting, building, warming up."""
        return median(self._overheads_s) if self._overheads_s else 0.0

    def limit_to(self, limit_bytes: int) -> None:
        """Limit every rank to at most `limit_bytes` from now on."""
        self.where = replace(self.where, limit_bytes=min(self.where.limit_bytes or limit_bytes, limit_bytes))

    def seen(self, variant: Variant) -> Point | None:
        """The memory that steps under a variant have shown already; None before any ran."""
        return self._seen.get(variant)

    def expected_s(self, batch: int, *, steps: int, variant: Variant | None = None) -> float:
        """Seconds that a trial of `steps` steps should take; an environment's first trial also starts a process."""
        is_cold = variant is not None and variant.environment not in self._warm
        steps_s = steps * batch / self.samples_per_s if self.samples_per_s else 0.0
        return self.overhead_s + steps_s + (self.start_s if is_cold else 0.0)

    def cost_s(self, request: TrialRequest) -> float:
        """The same for a request; 0 for the first trial, whose time is unknown."""
        if not self._overheads_s:
            return 0.0
        # a plan runs no step, and a process that calibrates goes up from batch 1 and ends itself
        batch = 1 if request.kind in ("plan", "calibrate") else request.batches[0]
        return self.expected_s(batch, steps=request.steps, variant=request.variant)

    def run(self, request: TrialRequest, deadline: Deadline, *, left_s: float, most_s: float | None = None) -> Trial:
        """The trial in a new process, or in the one that rests at its batch."""
        where = self._where(request, deadline, left_s, most_s)
        if request.kind == "fit" and self.device == "cpu" and not request.unlimited:
            return self._run_to_rest(request, where)
        if request.kind == "steady" and self._resting and self._resting[0] == (request.batches[0], request.variant):
            return self._run_on(request)
        trial = self.launcher.run(request, where)
        if request.kind == "plan" and trial.end is End.USER_ERROR:
            return trial.model_copy(update=_UNPLANNED)
        return trial

    def _run_to_rest(self, request: TrialRequest, where: Where) -> Trial:
        try:
            running = self.launcher.start(request.model_copy(update={"stay": True}), where)
        except TimeUpError as problem:
            return Trial(request=request, end=End.TIME_UP, detail=problem.message, stage="start")
        ended = running.collect(until_waiting=True)
        if ended is None:
            self.release()
            self._resting = ((request.batches[0], request.variant), running)
        return (ended or running.snapshot()).model_copy(update={"request": request})

    def _run_on(self, request: TrialRequest) -> Trial:
        assert self._resting is not None
        running, self._resting = self._resting[1], None
        before_s = running.spent_s
        running.go_on(request.steps, request.enough)
        ended = running.collect()
        assert ended is not None
        return ended.model_copy(update={"request": request, "seconds": round(ended.seconds - before_s, 3)})

    def learn(self, trial: Trial) -> None:
        """Learn the trial's speed, its time outside the steps, and the memory of the default's steps."""
        request, last = trial.request, trial.points[-1] if trial.points else None
        self._warm.add(request.variant.environment)
        if last is not None and request.kind in _TIMED_AT_ONE_BATCH:
            once_s = trial.seconds / trial.measured.get(RUNS, 1.0)
            self._overheads_s.append(max(0.0, once_s - sum(last.step_s)))
        if trial.end is End.USER_ERROR:
            return
        largest = max((p for p in trial.points if p.samples_per_s), key=lambda p: p.batch, default=None)
        if largest is not None:
            self.samples_per_s = largest.samples_per_s
        if last is not None and request.kind == "default" and trial.fits:
            self._seen[request.variant] = last

    def error_of(self, trial: Trial, base: Variant, left_s: float) -> GpudocError | None:
        """The user's error if the trial failed under `base`; a VariantFailedError if under another variant."""
        if trial.request.unlimited:
            return None
        hangs = trial.end in (End.HANG, End.TIME_UP) and trial.request.kind in _MUST_FIT and left_s > 0
        if trial.request.variant != base and (hangs or trial.end is End.USER_ERROR):
            return VariantFailedError(trial)
        return trial_error(trial) if trial.end is End.USER_ERROR else None

    def release(self) -> None:
        """End the process that rests, if any."""
        if self._resting is not None:
            self._resting[1].kill()
            self._resting = None

    def _where(self, request: TrialRequest, deadline: Deadline, left_s: float, most_s: float | None) -> Where:
        """The place of the trial, with a patience that grows with the steps' expected time if the budget allows it."""
        where = replace(self.where, deadline=deadline)
        if request.unlimited:
            where = replace(where, limit_bytes=None)
        if request.kind == "plan" and most_s is not None:
            # a trace is silent
            return replace(where, silence_s=most_s, most_silence_s=most_s)
        where = replace(where, stop_s=max(1.0, 0.3 * left_s) if most_s is None else most_s)
        if self.samples_per_s is None:
            return where
        trial_s = self.expected_s(request.batches[0], steps=2, variant=request.variant)
        expected_s = 2 * max(request.batches) * request.accumulation / self.samples_per_s
        return replace(
            where,
            most_silence_s=deadline.patience_s(math.inf, trial_s),
            silence_s=max(SILENCE_SECONDS, _SILENCE_FACTOR * expected_s),
        )
