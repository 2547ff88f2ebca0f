"""One search under way: it asks for trials, keeps them in the journal, and counts their cost against the budget."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeAlias, TypeVar

from gpudoc.profile.model import Loader
from gpudoc.progress import Progress
from gpudoc.tune.loader.reasons import name
from gpudoc.tune.model.gain import speed_with_data
from gpudoc.tune.model.loader import LoaderSetting
from gpudoc.tune.search.climb import climb
from gpudoc.tune.search.journal import Journal
from gpudoc.tune.search.repetition import Repetition
from gpudoc.tune.search.runner import Runner, VariantFailedError, WorkloadRunner
from gpudoc.tune.trial.deadline import Deadline
from gpudoc.tune.trial.messages import End, Kind, Trial, TrialRequest, Variant
from gpudoc.units import format_bytes, format_rate, format_seconds

R = TypeVar("R", bound=Runner)
_IN_WORDS = {
    "default": "your default",
    "variant": "other settings",
    "plan": "planning memory",
    "alike": "do all steps need the same memory",
    "calibrate": "memory, growing batches",
    "fit": "does it fit",
    "steady": "a longer run",
    "speed": "speed",
    "joint": "the choice with your data",
}
# kinds of trials whose results only the search uses
_UNSAID = ("plan", "alike")


@dataclass(slots=True, kw_only=True)
class Session(Generic[R]):
    """Runs the trials of one search under one limit; satisfies `largest.Prober`.

    Trials in the journal are not run again, and their seconds count as spent once, so that a resumed search makes the
    same decisions. A trial that cannot end before the `deadline` is not begun. `reserved_s` is kept for the mandatory
    trials at the end. Trials of a batch run under `variant`, fed by `feed` (None: the runner's own), with accumulation
    below `accumulate_below`; `enough` holds the steady steps that suffice per variant. `base` is the user's variant.
    """

    runner: R
    journal: Journal
    progress: Progress
    budget_s: float
    deadline: Deadline = field(default_factory=Deadline)
    base: Variant = field(default_factory=Variant)
    variant: Variant = field(default_factory=Variant)
    feed: Loader | None = None
    accumulate_below: int = 1
    enough: dict[Variant, int] = field(default_factory=dict)
    spent_s: float = 0.0
    share_s: float = 0.0
    reserved_s: float = 0.0
    repeats: bool = True
    again: Repetition = field(default_factory=Repetition)
    _said_lost: bool = False
    _kept_at_s: float = field(init=False)
    _accounted: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._kept_at_s = self.deadline.clock()

    def go_on_until(self, deadline: Deadline) -> None:
        """Continue with a later deadline and its budget."""
        self.deadline, self.budget_s = deadline, deadline.budget_s

    @property
    def left_s(self) -> float:
        """Seconds of the budget that are left; negative if it is overdrawn."""
        return min(self.budget_s - self.spent_s, self.deadline.left_s)

    @property
    def free_s(self) -> float:
        """Seconds that are left without the reserve; negative if the reserve is in use."""
        return self.left_s - self.reserved_s

    def can_run(self, request: TrialRequest) -> bool:
        """Whether the trial can end in the time that is left, including the reserve; a known trial takes no time."""
        is_known = self.journal.find(request) is not None
        return is_known or (self.left_s > 0 and self.runner.cost_s(request) <= self.left_s)

    def run(self, request: TrialRequest, why: str = "", *, most_s: float | None = None) -> Trial:
        """The trial of `request`, from the journal or run now; GpudocError if the user's own code fails.

        `most_s` limits its time, if that is less than the time left.
        """
        known = self.journal.find(request)
        if known is None:
            if not self.can_run(request):
                return not_begun(request)
            if why:
                self.say(why)
            self._advance(request)
            known = self.again.least_disturbed(
                lambda: self.runner.run(request, self.deadline, left_s=self.left_s, most_s=most_s),
                # disturbance by other processes is only reported if nothing is chosen for its speed
                budget_s=self.budget_s if self.repeats else 0.0,
                left_s=lambda: self.left_s,
                say=self.say,
            )
            known = self._keep(known)
            if request.kind not in _UNSAID:
                self.say(describe_trial(known))
        return self._account(known)

    def _keep(self, trial: Trial) -> Trial:
        """Add the trial to the journal, with all seconds since the previous one if these are more."""
        now_s = self.deadline.clock()
        trial = trial.model_copy(update={"seconds": round(max(trial.seconds, now_s - self._kept_at_s), 3)})
        self._kept_at_s = now_s
        self.journal.add(trial)
        return trial

    def attempt(self, request: TrialRequest, why: str = "") -> Trial:
        """Like `run`, but a variant's failure is returned as the trial's end."""
        try:
            return self.run(request, why)
        except VariantFailedError as problem:
            return problem.trial

    def record(self, trial: Trial) -> Trial:
        """Keep a trial that was run elsewhere."""
        return self._account(self._keep(trial))

    def find(self, request: TrialRequest) -> Trial | None:
        """A trial that the journal already has, its cost counted."""
        known = self.journal.find(request)
        return None if known is None else self._account(known)

    def calibrate(self, cap: int) -> Trial:
        """Run larger and larger batches, as far as they fit without risk: in one process, or each in a launch."""
        request = self.request("calibrate", cap, steps=1)
        limit_bytes = self.runner.limit_bytes or 0
        start = self.runner.reference
        if start is None:
            return self.run(request, f"calibrating memory: batch 1, 2, 4 and up under {format_bytes(limit_bytes)}")
        trial, points = climb(self.fit, start=start, cap=cap, limit_bytes=limit_bytes)
        end = End.FITS if points else trial.end
        return trial.model_copy(update={"request": request, "points": points, "end": end, "seconds": 0.0})

    def fit(self, batch: int) -> Trial:
        """The first steps at `batch`."""
        return self.run(self.request("fit", batch, steps=self.runner.fit_steps))

    def steady(self, batch: int, *, steps: int) -> Trial:
        """The later part of training at `batch`: a checkpoint if there is one, and more steps."""
        enough = self.enough.get(self.variant, 0)
        request = self.request("steady", batch, steps=steps, enough=enough)
        fewer = f", {enough} of them where memory stays as it is" if enough else ""
        return self.run(request, f"steady state at batch {batch}: {steps} more steps{fewer}")

    def needed_bytes(self, batch: int) -> int | None:
        """The peak at `batch` without any limit, or None if even that fails."""
        point = self.run(self.request("fit", batch, steps=2, unlimited=True)).point(batch)
        return None if point is None else point.peak_bytes

    def can_afford(self, samples: float) -> bool:
        """Whether steps over `samples` samples end within the time for the search for the largest batch."""
        rate = self.runner.samples_per_s
        if rate is None and not self.runner.overhead_s:
            return True
        seconds = self.runner.overhead_s + (samples / rate if rate else 0.0)
        return seconds <= min(self.share_s - self.spent_s, self.left_s)

    def say(self, text: str) -> None:
        """Tell the user which trial runs and why."""
        self.progress.say(text)

    def release(self) -> None:
        """End the processes that rest, if any."""
        self.runner.release()

    def request(
        self,
        kind: Kind,
        batch: int,
        *,
        steps: int,
        enough: int = 0,
        threads: int | None = None,
        unlimited: bool = False,
    ) -> TrialRequest:
        """A trial of one batch with the choices so far."""
        return TrialRequest(
            kind=kind,
            batches=(batch,),
            variant=self.variant,
            feed=self.feed,
            ranks=self.runner.ranks,
            steps=steps,
            accumulate_below=self.accumulate_below,
            enough=enough,
            threads=threads,
            unlimited=unlimited,
        )

    def _account(self, trial: Trial) -> Trial:
        key = trial.request.key()
        if key not in self._accounted:
            self._accounted.add(key)
            self.spent_s += trial.seconds
            self.runner.learn(trial)
        if self.journal.lost and not self._said_lost:
            self._said_lost = True
            self.say(
                f"! Cannot write the journal ({self.journal.lost}). The search continues, but if it is killed its "
                "progress is lost."
            )
        problem = self.runner.error_of(trial, self.base, self.left_s)
        if problem is not None:
            raise problem
        self._advance(trial.request)
        return trial

    def _advance(self, request: TrialRequest) -> None:
        self.deadline.show(self.progress, self._status(request))

    def _status(self, request: TrialRequest) -> str:
        """The current trial, the speed to beat, and the last peak against the limit."""
        ends = [str(batch) for batch in dict.fromkeys((*request.batches[:1], *request.batches[-1:]))]
        at = f", batch {' to '.join(ends)}" if ends else ""
        parts = [f"trial {len(self.journal.trials) + 1}: {_IN_WORDS.get(request.kind, request.kind)}{at}"]
        trials = [trial for trial in self.journal.trials if trial.fits]
        points = [point for trial in trials for point in trial.points]
        default = speed_with_data([trial for trial in trials if trial.request.kind == "default"])
        if default is not None:
            parts.append(f"your default {format_rate(default.middle, 'samples/s')}")
        peak = next((point.peak_bytes for point in reversed(points) if point.peak_bytes), None)
        if peak is not None and self.runner.limit_bytes:
            parts.append(f"{format_bytes(peak)} of {format_bytes(self.runner.limit_bytes)}")
        return " · ".join(parts)


WorkloadSession: TypeAlias = Session[WorkloadRunner]


def not_begun(request: TrialRequest) -> Trial:
    """The trial of a request for which no time is left; it is not added to the journal."""
    return Trial(request=request, end=End.TIME_UP, detail="no time was left for it", stage="start")


def why_rejected(trial: Trial) -> str:
    """One line on why a trial's variant is not used: the failure, and its stage."""
    what = trial.detail if trial.end is End.USER_ERROR else f"{trial.end.told}: {trial.detail}"
    return f"rejected, it failed in {trial.stage}: {what[:200]}"


def describe_trial(trial: Trial) -> str:
    """One line on a trial: its kind and batch, how it ended, memory, speed and waiting."""
    request, measured = trial.request, trial.measured
    points = [p for p in trial.points if p.peak_bytes is not None]
    last = max(points, key=lambda p: p.batch, default=None)
    batch = (trial.failed_batch or (last.batch if last else request.batches[0])) if request.batches else None
    what = f" batch {batch}" if batch else f" {_describe_feed(request.feed)}" if request.feed else ""
    parts = ["fits" if trial.fits else f"{trial.end.told} in {trial.stage}"]
    if not trial.fits and not trial.end.is_too_large and trial.detail:
        parts[0] += f": {trial.detail[:120]}"
    if last is not None and last.peak_bytes is not None and request.batches:
        parts.append(f"peak {format_bytes(last.peak_bytes)}" + ("" if last.batch == batch else f" at {last.batch}"))
    rate = measured.get("samples_per_s") or (last.samples_per_s or 0.0) * request.ranks if last else 0.0
    if trial.fits and rate:
        parts.append(f"{rate:,.4g} samples/s" + (f" of {request.ranks} ranks" if request.ranks > 1 else ""))
    if trial.fits and "wait_share" in measured:
        parts.append(f"{measured['wait_share']:.0%} waiting")
    parts.append(format_seconds(trial.seconds))
    without = " without a limit" if request.unlimited else ""
    return f"  {request.kind}{what}{without}: {', '.join(parts)}"


def _describe_feed(feed: Loader) -> str:
    return name(LoaderSetting(**feed.model_dump(exclude={"persistent_workers"})))
