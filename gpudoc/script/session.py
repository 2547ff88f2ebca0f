"""One search over a script: asks for launches, keeps them in the journal, counts what they cost against the budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from gpudoc.progress import Progress
from gpudoc.script.look import Look
from gpudoc.stats import median
from gpudoc.tune.loader.reasons import name
from gpudoc.tune.model.loader import LoaderSetting
from gpudoc.tune.model.memory import fit_memory
from gpudoc.tune.search.again import Again
from gpudoc.tune.search.journal import Journal
from gpudoc.tune.search.session import not_begun
from gpudoc.tune.trial.deadline import Deadline
from gpudoc.tune.trial.messages import End, Feed, Kind, Point, Request, Trial, Variant
from gpudoc.units import format_bytes, format_seconds

FIT_STEPS = 2
# to end a launch with all its processes, and to write what was found, on a busy machine
_ENDING_S = 3.0
WARM_STEPS = 3
# peaks of fresh processes that are so far apart tell a slope
_TELLING_BYTES = 8 << 20
_MOST_CALIBRATIONS = 7
# a line is trusted for so many times the batch that it was drawn through: what the imports held hides the first samples
_MOST_AHEAD = 4


class Runner(Protocol):
    """What starts the script: one launch for each call, ended with all its processes before it returns."""

    def run(self, request: Request, *, patience_s: float) -> Trial:
        """The trial of `request`, given up when nothing was measured after `patience_s`."""


@dataclass(slots=True, kw_only=True)
class Session:
    """Runs trials of one script; satisfies `largest.Prober`.

    `reference` is the script's own batch of one rank, `own` the launch of the look, `feed` the loader that trials of a
    batch are fed with (None: the script's own), `variant` what else they are launched with. `check` looks at all trials
    of a batch so far and raises when the batch did not arrive. What is in the journal is not run again, and its seconds
    count as spent; a launch that cannot end before the `deadline` is not begun.
    """

    runner: Runner
    journal: Journal
    progress: Progress
    look: Look
    own: Trial | None = None
    budget_s: float
    deadline: Deadline = field(default_factory=Deadline)
    reference: int = 1
    limit_bytes: int | None = None
    feed: Feed | None = None
    variant: Variant = field(default_factory=Variant)
    spent_s: float = 0.0
    share_s: float = 0.0
    reserved_s: float = 0.0
    check: Callable[[Sequence[Trial]], None] | None = None
    _accounted: set[str] = field(default_factory=set)
    again: Again = field(default_factory=Again)
    _seconds: list[float] = field(default_factory=list)
    _said_lost: bool = False

    @property
    def free_s(self) -> float:
        """Seconds of the budget that are left without what is reserved for the end; negative when overdrawn."""
        return min(self.budget_s - self.spent_s, self.deadline.left_s) - self.reserved_s

    def can_end(self, request: Request) -> bool:
        """Whether a launch for the request can end in the time that is left, the reserve included."""
        known = self.journal.find(request) is not None
        return known or self.expected_s(request) + _ENDING_S <= self.free_s + self.reserved_s

    def expected_s(self, request: Request) -> float:
        """Seconds of the launch: those of a typical one, and what a larger batch adds to its steps."""
        growth = max(0.0, request.batches[0] / self.reference - 1.0) if request.batches else 0.0
        return self.launch_s + growth * self.look.step_s * (request.steps + WARM_STEPS)

    @property
    def launch_s(self) -> float:
        """Seconds of a typical launch, steps included."""
        return median(self._seconds) if self._seconds else self.look.start_s + 3.0

    def run(self, request: Request, why: str = "") -> Trial:
        """The trial of `request`, from the journal or run now."""
        known = self.journal.find(request)
        if known is None and not self.can_end(request):
            return not_begun(request)
        if known is None:
            if why:
                self.say(why)
            self.advance(request.kind)
            known = self.again.least_disturbed(
                lambda: self._launch(request),
                budget_s=self.budget_s,
                left_s=lambda: self.free_s + self.reserved_s,
                say=self.progress.say,
            )
            self.journal.add(known)
            self.say(describe(known))
        elif request.key() not in self._accounted:
            self._seconds.append(known.seconds)
        key = request.key()
        if key not in self._accounted:
            self._accounted.add(key)
            self.spent_s += known.seconds
        if self.journal.lost and not self._said_lost:
            self._said_lost = True
            self.say(f"the journal cannot be written ({self.journal.lost}); going on, but a kill would lose this")
        return known

    def _launch(self, request: Request) -> Trial:
        usual_s = self.usual_patience_s(request)
        patience_s = self.deadline.patience_s(usual_s, self.expected_s(request))
        patience_s = min(patience_s, self.deadline.left_s - _ENDING_S)
        trial = self.runner.run(request, patience_s=patience_s)
        if trial.end is End.HANG and patience_s < usual_s:
            return trial.model_copy(update={"end": End.TIME_UP, "detail": f"{trial.detail}, and no time for more"})
        self._seconds.append(trial.seconds)
        return trial

    def usual_patience_s(self, request: Request) -> float:
        """How long a launch may take: several times as long as the look's, since a larger batch takes longer."""
        growth = max(1.0, request.batches[0] / self.reference) if request.batches else 1.0
        steps_s = 3 * growth * self.look.step_s * (request.steps + 8)
        return max(30.0, 4 * self.look.start_s) + steps_s + 3 * request.seconds_per_batch

    def advance(self, text: str) -> None:
        """Show how much of the budget is spent."""
        self.deadline.show(self.progress, text)

    def say(self, text: str) -> None:
        """Tell the user what is being tried and why."""
        self.progress.say(text)

    def calibrate(self, cap: int) -> Trial:
        """The script's own batch and larger ones, each launched anew, until two peaks tell how memory grows."""
        points: list[Point] = []
        batch = min(self.reference, cap)
        trial = self.fit(batch)
        for _ in range(_MOST_CALIBRATIONS):
            if trial.fits and trial.points:
                points.append(trial.points[-1])
                following = self._following(points, cap)
                if following is None:
                    break
                batch = following
            elif points or batch == 1 or not trial.end.is_too_large:
                break
            else:
                batch = max(1, batch // 4)
            trial = self.fit(batch)
        points.sort(key=lambda point: point.batch)
        request = self._request("calibrate", cap, steps=1)
        ends = End.FITS if points else trial.end
        update = {"request": request, "points": tuple(points), "end": ends, "seconds": 0.0}
        return trial.model_copy(update=update)

    def _following(self, points: Sequence[Point], cap: int) -> int | None:
        """The next batch on the way up; None once a line through the peaks reaches the limit, or at the cap."""
        last = max(point.batch for point in points)
        line = fit_memory(points) if _tells(points) else None
        if line is None:
            following = last * (2 if len(points) == 1 else 4)
        else:
            predicted = line.largest(self.limit_bytes or 0)
            following = last if predicted <= _MOST_AHEAD * last else predicted // 2
        return min(cap, following) if last < min(cap, following) else None

    def fit(self, batch: int) -> Trial:
        """The first steps at `batch`, on the longest samples that could be found."""
        trial = self.run(self._request("fit", batch, steps=FIT_STEPS))
        if self.check is not None:
            self.check([one for one in self.journal.trials if one.request.kind == "fit"])
        return trial

    def steady(self, batch: int, *, steps: int) -> Trial:
        """More steps at `batch`, so that what grows shows."""
        return self.run(self._request("steady", batch, steps=steps), f"steady state at batch {batch}: {steps} steps")

    def needed_bytes(self, batch: int) -> int | None:
        """The peak at `batch` without any limit, or None when even that fails."""
        request = self._request("fit", batch, steps=2).model_copy(update={"extra": {"unlimited": 1.0}})
        trial = self.run(request)
        return trial.points[-1].peak_bytes if trial.fits and trial.points else None

    def can_afford(self, samples: float) -> bool:
        """Whether a launch with steps over `samples` samples ends within what the search for the batch may take."""
        rate = self.look.samples_per_s
        steps_s = samples * self.look.ranks / rate if rate else 0.0
        return self.launch_s + steps_s <= min(self.share_s - self.spent_s, self.deadline.left_s)

    def _request(self, kind: Kind, batch: int, *, steps: int) -> Request:
        ranks = self.look.ranks
        return Request(kind=kind, batches=(batch,), variant=self.variant, feed=self.feed, ranks=ranks, steps=steps)


def describe(trial: Trial) -> str:
    """One line: what was launched, how it ended, memory, speed and waiting."""
    request, measured = trial.request, trial.measured
    what = f"batch {request.batches[0]}" if request.batches else ""
    if request.kind == "loader" and request.feed is not None:
        feed = request.feed.model_dump(exclude={"persistent_workers"})
        what = name(LoaderSetting(**feed))
    end = "fits" if trial.fits and request.batches else "" if trial.fits else f"{trial.end.told}: {trial.detail[:120]}"
    peak = trial.points[-1].peak_bytes if trial.points else None
    parts = [
        end,
        "" if peak is None or not request.batches else f"peak {format_bytes(peak)}",
        f"{measured['samples_per_s']:,.4g} samples/s" if trial.fits and "samples_per_s" in measured else "",
        f"{measured['wait_share']:.0%} waiting" if trial.fits and "wait_share" in measured else "",
        format_seconds(trial.seconds),
    ]
    return f"  {request.kind} {what}".rstrip() + ": " + ", ".join(part for part in parts if part)


def _tells(points: Sequence[Point]) -> bool:
    known = [(point.batch, point.peak_bytes) for point in points if point.peak_bytes is not None]
    if len(known) < 2:
        return False
    return abs(known[-1][1] - known[0][1]) >= _TELLING_BYTES and max(known)[0] >= 2 * min(known)[0]
