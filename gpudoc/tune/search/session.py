"""One search under way: asks for trials, keeps them in the journal, counts what they cost against the budget."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from gpudoc.errors import GpudocError
from gpudoc.progress import Progress
from gpudoc.stats import median
from gpudoc.tune.model.gain import speed_with_data
from gpudoc.tune.search.again import RUNS, Again
from gpudoc.tune.search.journal import Journal
from gpudoc.tune.trial.deadline import Deadline, TimeUpError
from gpudoc.tune.trial.fork_client import trial_error
from gpudoc.tune.trial.launcher import SILENCE_SECONDS, Launcher, Running, Where
from gpudoc.tune.trial.messages import End, Point, Request, Trial, Variant
from gpudoc.units import format_bytes, format_rate, format_seconds

_SILENCE_FACTOR = 20.0
# the optimizer's state comes with the first step, the full peak with the second, a settled heap with the third
FIT_STEPS = 3
# after a checkpoint, where small steps were all alike and these leave memory as it is
ENOUGH_STEPS = 5
# batch normalization cannot train on one sample
_SMALL_BATCH = 2
_UNPLANNED = {"end": End.SIGNAL, "traceback": ""}
_IN_WORDS = {
    "default": "your default",
    "variant": "other settings",
    "plan": "planning memory",
    "alike": "are all steps alike",
    "calibrate": "memory, growing batches",
    "fit": "does it fit",
    "steady": "a longer run",
    "speed": "speed",
    "joint": "the choice with your data",
}
_TIMED_AT_ONE_BATCH = ("default", "variant", "joint")


# where nothing but a fit answers the question
_MUST_FIT = ("calibrate", "fit", "steady")


class VariantFailedError(GpudocError):
    """A trial failed under a variant that nobody asked for, so that the search can go on without it."""

    def __init__(self, trial: Trial) -> None:
        told = trial_error(trial)
        super().__init__(told.message, hint=told.hint, exit_code=told.exit_code)
        self.trial = trial


@dataclass(slots=True, kw_only=True)
class Session:
    """Runs trials of one workload on one device under one limit; satisfies `largest.Prober`.

    What is in the journal is not run again, and its seconds count as spent, once: a search that goes on decides the
    same. `reserved_s` is kept for what must come at the end; batches below `accumulate_below` train with accumulation.
    What fails under the variant `base` is the user's error; under another one it is a VariantFailedError. A trial that
    cannot end before the `deadline` is not begun.
    """

    launcher: Launcher
    journal: Journal
    where: Where
    progress: Progress
    budget_s: float
    deadline: Deadline = field(default_factory=Deadline)
    base: Variant = field(default_factory=Variant)
    variant: Variant = field(default_factory=Variant)
    accumulate_below: int = 1
    ranks: int = 1
    spent_s: float = 0.0
    share_s: float = 0.0
    reserved_s: float = 0.0
    repeats: bool = True
    samples_per_s: float | None = None
    _held: tuple[tuple[int, Variant], Running] | None = None
    _said_lost: bool = False
    _kept_at_s: float = field(init=False)
    again: Again = field(default_factory=Again)
    _alike: set[Variant] = field(default_factory=set)
    _seen: dict[Variant, Point] = field(default_factory=dict)
    _accounted: set[str] = field(default_factory=set)
    _overheads_s: list[float] = field(default_factory=list)
    _warm: set[tuple[str, str]] = field(default_factory=lambda: {Variant().environment})

    def __post_init__(self) -> None:
        self._kept_at_s = self.deadline.clock()
        self.where = replace(self.where, deadline=self.deadline)

    def go_on_until(self, deadline: Deadline) -> None:
        """Have the time up to a later end for what comes now."""
        self.deadline, self.budget_s = deadline, deadline.budget_s
        self.where = replace(self.where, deadline=deadline)

    @property
    def left_s(self) -> float:
        """Seconds of the budget that are left; negative when it is overdrawn."""
        return min(self.budget_s - self.spent_s, self.deadline.left_s)

    @property
    def free_s(self) -> float:
        """Seconds that are left without the reserve; negative when the reserve is touched."""
        return self.left_s - self.reserved_s

    @property
    def overhead_s(self) -> float:
        """Seconds of a typical trial outside its timed steps: starting, building, warming up; 0 while unknown."""
        return median(self._overheads_s) if self._overheads_s else 0.0

    @property
    def seen(self) -> Point | None:
        """What steps under the variant of now have shown of memory already; None before any ran."""
        return self._seen.get(self.variant)

    def expected_s(self, batch: int, *, steps: int, variant: Variant | None = None) -> float:
        """Seconds that a trial of so many steps at `batch` should take; an environment's first one starts a process."""
        anew = variant is not None and variant.environment not in self._warm
        steps_s = steps * batch / self.samples_per_s if self.samples_per_s else 0.0
        return self.overhead_s + steps_s + (self.journal.start_s if anew else 0.0)

    def can_start(self, batch: int, *, steps: int = 6) -> bool:
        """Whether a trial of so many steps at `batch` should end before the reserve is touched."""
        return self.expected_s(batch, steps=steps) <= self.free_s

    def run(self, request: Request, why: str = "") -> Trial:
        """The trial of `request`, from the journal or run now; GpudocError when the user's own code fails."""
        known = self.journal.find(request)
        if known is None:
            if not self._may_begin(request):
                return not_begun(request)
            if why:
                self.progress.say(why)
            self._advance(request)
            known = self.again.least_disturbed(
                lambda: self.launcher.run(request, self._where(request)),
                # where nothing is chosen for its speed, what others disturb is only said
                budget_s=self.budget_s if self.repeats else 0.0,
                left_s=lambda: self.left_s,
                say=self.progress.say,
            )
            known = self._keep(known)
            self._say_result(known)
        return self._account(known)

    def _may_begin(self, request: Request) -> bool:
        """Whether the trial can end in the time that is left; of the first one nobody knows."""
        if not self._overheads_s:
            return self.left_s > 0
        # a plan runs no step, and a process that calibrates goes up from batch 1 and ends itself
        batch = 1 if request.kind in ("plan", "calibrate") else request.batches[0]
        return self.expected_s(batch, steps=request.steps, variant=request.variant) <= self.left_s

    def _keep(self, trial: Trial) -> Trial:
        """The trial as it stands in the journal: with all the seconds since the one before, if these are more."""
        now_s = self.deadline.clock()
        trial = trial.model_copy(update={"seconds": round(max(trial.seconds, now_s - self._kept_at_s), 3)})
        self._kept_at_s = now_s
        self.journal.add(trial)
        return trial

    def attempt(self, request: Request, why: str = "") -> Trial:
        """The same for a variant that may fail, which the trial then says."""
        try:
            return self.run(request, why)
        except VariantFailedError as problem:
            return problem.trial

    def record(self, trial: Trial) -> Trial:
        """Keep a trial that was run elsewhere."""
        return self._account(self._keep(trial))

    def find(self, request: Request) -> Trial | None:
        """A trial that the journal already has, its cost counted."""
        known = self.journal.find(request)
        return None if known is None else self._account(known)

    def calibrate(self, cap: int) -> Trial:
        """Ever larger batches in one process, as far as they fit without risk."""
        why = f"calibrating memory: batch 1, 2, 4 and up under {format_bytes(self.where.limit_bytes or 0)}"
        return self.run(self._request("calibrate", cap, steps=1), why)

    def plan(self, request: Request, seconds: float) -> Trial:
        """What the plan foresees, in a process of its own that has so many seconds; never the user's error."""
        known = self.find(request)
        if known is None:
            if not self._may_begin(request):
                return not_begun(request)
            self.progress.say("planning the step's memory without running it")
            where = replace(self.where, silence_s=seconds, most_silence_s=seconds)
            trial = self.launcher.run(request, where)
            # what fails in a trace may well run: it is not said of the user's code
            known = self.record(trial if trial.end is not End.USER_ERROR else trial.model_copy(update=_UNPLANNED))
        return known

    def compare_steps(self, steps: int, seconds: float) -> None:
        """Learn whether so many small steps under the variant do the same, within so many seconds.

        What fails in such a trial says nothing of the large steps: then all of those are run.
        """
        request = self._request("alike", _SMALL_BATCH, steps=steps)
        # threads that share so little work cost more time than they save
        request = request.model_copy(update={"extra": {"threads": 1.0}})
        where = replace(self._where(request), stop_s=seconds)
        trial = self.find(request)
        if trial is None and self._may_begin(request):
            trial = self.record(self.launcher.run(request, where))
        if trial is not None and trial.fits and trial.measured.get("alike"):
            self._alike.add(self.variant)

    def fit(self, batch: int) -> Trial:
        """The first steps at `batch`; on a CPU the process then rests, so that `steady` can go on with it."""
        request = self._request("fit", batch, steps=FIT_STEPS)
        known = self.find(request)
        if known is not None:
            return known
        if not self._may_begin(request):
            return not_begun(request)
        self._advance(request)
        stays = self.where.device == "cpu"
        try:
            running = self.launcher.start(request.model_copy(update={"stay": stays}), self._where(request))
        except TimeUpError:
            return not_begun(request)
        ended = running.collect(until_waiting=stays)
        trial = self._keep((ended or running.snapshot()).model_copy(update={"request": request}))
        if ended is None:
            self.release()
            self._held = ((batch, self.variant), running)
        self._say_result(trial)
        return self._account(trial)

    def steady(self, batch: int, *, steps: int) -> Trial:
        """The whole script at `batch`, in the process that rests there or in a new one."""
        enough = ENOUGH_STEPS if self.variant in self._alike else 0
        request = self._request("steady", batch, steps=steps)
        request = request.model_copy(update={"extra": {"enough": float(enough)} if enough else {}})
        known = self.find(request)
        if known is not None:
            return known
        if not self._may_begin(request):
            return not_begun(request)
        fewer = f", {enough} of them where memory stays as it is" if enough else ""
        self.progress.say(f"steady state at batch {batch}: a checkpoint, {steps} more steps{fewer}")
        self._advance(request)
        if self._held is not None and self._held[0] == (batch, self.variant):
            running = self._held[1]
            self._held = None
            before = running.spent_s
            running.go_on(steps, enough)
            ended = running.collect()
            assert ended is not None
            trial = ended.model_copy(update={"request": request, "seconds": round(ended.seconds - before, 3)})
        else:
            trial = self.launcher.run(request, self._where(request))
        trial = self._keep(trial)
        self._say_result(trial)
        return self._account(trial)

    def needed_bytes(self, batch: int) -> int | None:
        """The peak at `batch` without any limit, or None when even that fails."""
        request = self._request("fit", batch, steps=2)
        request = request.model_copy(update={"extra": {"unlimited": 1.0}})
        trial = self.find(request)
        if trial is None and self._may_begin(request):
            trial = self._keep(self.launcher.run(request, replace(self._where(request), limit_bytes=None)))
        point: Point | None = None if trial is None else trial.point(batch)
        return None if point is None else point.peak_bytes

    def can_afford(self, samples: float) -> bool:
        """Whether steps over `samples` samples end within what the search for the largest batch may take."""
        if self.samples_per_s is None:
            return True
        seconds = self.overhead_s + samples / self.samples_per_s
        return seconds <= min(self.share_s - self.spent_s, self.left_s)

    def say(self, text: str) -> None:
        """Tell the user what is being tried and why."""
        self.progress.say(text)

    def release(self) -> None:
        """End the process that rests, if any."""
        if self._held is not None:
            self._held[1].kill()
            self._held = None

    def _request(self, kind: str, batch: int, *, steps: int) -> Request:
        return Request.model_validate(
            {
                "kind": kind,
                "batches": (batch,),
                "variant": self.variant,
                "ranks": self.ranks,
                "steps": steps,
                "accumulate_below": self.accumulate_below,
            }
        )

    def _where(self, request: Request) -> Where:
        """Where the trial runs, with a patience that grows with the steps' expected time while the budget allows it."""
        where = replace(self.where, stop_s=max(1.0, 0.3 * self.left_s))
        if self.samples_per_s is None:
            return where
        trial_s = self.expected_s(request.batches[0], steps=2, variant=request.variant)
        where = replace(where, most_silence_s=self.deadline.patience_s(math.inf, trial_s))
        expected = 2 * max(request.batches) * request.accumulation / self.samples_per_s
        return replace(where, silence_s=max(SILENCE_SECONDS, _SILENCE_FACTOR * expected))

    def _account(self, trial: Trial) -> Trial:
        key = trial.request.key()
        if key not in self._accounted:
            self._accounted.add(key)
            self.spent_s += trial.seconds
            self._warm.add(trial.request.variant.environment)
            self._learn_overhead(trial)
        if self.journal.lost and not self._said_lost:
            self._said_lost = True
            self.progress.say(
                f"! the journal cannot be written ({self.journal.lost}); going on, but a kill would lose this"
            )
        hangs = trial.end in (End.HANG, End.TIME_UP) and trial.request.kind in _MUST_FIT and self.left_s > 0
        if trial.request.variant != self.base and (hangs or trial.end is End.USER_ERROR):
            raise VariantFailedError(trial)
        if trial.end is End.USER_ERROR:
            raise trial_error(trial)
        self._learn_speed(trial)
        if trial.request.kind == "default" and trial.fits and trial.points:
            self._seen[trial.request.variant] = trial.points[-1]
        self._advance(trial.request)
        return trial

    def _learn_speed(self, trial: Trial) -> None:
        largest = max((p for p in trial.points if p.samples_per_s), key=lambda p: p.batch, default=None)
        if largest is not None and largest.samples_per_s:
            self.samples_per_s = largest.samples_per_s

    def _learn_overhead(self, trial: Trial) -> None:
        if trial.request.kind in _TIMED_AT_ONE_BATCH and trial.points:
            once_s = trial.seconds / trial.measured.get(RUNS, 1.0)
            self._overheads_s.append(max(0.0, once_s - sum(trial.points[-1].step_s)))

    def _advance(self, request: Request) -> None:
        self.deadline.show(self.progress, self._status(request))

    def _status(self, request: Request) -> str:
        """What is tried now, the speed to beat, and the last peak against the limit."""
        batch = request.batches[0] if len(request.batches) == 1 else f"{request.batches[0]} to {request.batches[-1]}"
        parts = [f"trial {len(self.journal.trials) + 1}: {_IN_WORDS.get(request.kind, request.kind)}, batch {batch}"]
        trials = [trial for trial in self.journal.trials if trial.fits]
        points = [point for trial in trials for point in trial.points]
        default = speed_with_data([trial for trial in trials if trial.request.kind == "default"])
        if default is not None:
            parts.append(f"your default {format_rate(default.middle, 'samples/s')}")
        peak = next((point.peak_bytes for point in reversed(points) if point.peak_bytes), None)
        if peak is not None and self.where.limit_bytes:
            parts.append(f"{format_bytes(peak)} of {format_bytes(self.where.limit_bytes)}")
        return " · ".join(parts)

    def _say_result(self, trial: Trial) -> None:
        self.progress.say(describe_trial(trial))


def not_begun(request: Request) -> Trial:
    """The trial of a request for which no time is left; it is in no journal."""
    return Trial(request=request, end=End.TIME_UP, detail="no time was left for it", stage="start")


def why_rejected(trial: Trial) -> str:
    """In one line why a trial's variant is not used: what failed, and where."""
    what = trial.detail if trial.end is End.USER_ERROR else f"{trial.end.told}: {trial.detail}"
    return f"rejected, it failed in {trial.stage}: {what[:200]}"


def describe_trial(trial: Trial) -> str:
    """One line: what was run, how it ended, memory and speed."""
    points = [p for p in trial.points if p.peak_bytes is not None]
    last = max(points, key=lambda p: p.batch, default=None)
    batch = trial.failed_batch if trial.failed_batch else last.batch if last else trial.request.batches[0]
    end = "fits" if trial.fits else f"{trial.end.told} in {trial.stage}"
    parts = [f"  {trial.request.kind} batch {batch}: {end}"]
    if last is not None and last.peak_bytes is not None:
        parts.append(f"peak {format_bytes(last.peak_bytes)}" + ("" if last.batch == batch else f" at {last.batch}"))
    if trial.fits and last is not None and last.samples_per_s:
        ranks = trial.request.ranks
        parts.append(f"{last.samples_per_s * ranks:,.4g} samples/s" + (f" of {ranks} ranks" if ranks > 1 else ""))
    parts.append(format_seconds(trial.seconds))
    return ", ".join(parts)
