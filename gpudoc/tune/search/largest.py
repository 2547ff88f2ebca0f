"""The search for the largest batch: calibrate below the limit, predict, prove the prediction from both sides."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from gpudoc.errors import ExitCode, GpudocError
from gpudoc.tune.model.memory import NOT_AFFINE, MemoryLine, fit_memory, growth_exponent, residual_bytes
from gpudoc.tune.trial.deadline import TimeUpError
from gpudoc.tune.trial.messages import End, Point, Trial
from gpudoc.units import MIB, format_bytes

MAX_LAUNCHES = 24
BUDGET_ENDS = "the budget ends"
_BISECT_AFTER = 4
# peaks of fresh processes that differ this much give the slope, since each varies by about 1 MiB
_TELLING_BYTES = 8 * MIB
_FAR_MARGIN = 0.05


class Prober(Protocol):
    """Measurements for the search; every answer comes from fresh processes under the limit, or from the journal."""

    def calibrate(self, cap: int) -> Trial:
        """Run larger and larger batches in one process, as far as they fit without risk."""

    def fit(self, batch: int) -> Trial:
        """Whether the first steps at `batch` fit, including the last partial batch and an eval batch."""

    def steady(self, batch: int, *, steps: int) -> Trial:
        """Whether the later parts of training fit too, with `steps` more steps."""

    def needed_bytes(self, batch: int) -> int | None:
        """The peak at `batch` without any limit, or None if it cannot be measured."""

    def can_afford(self, samples: float) -> bool:
        """Whether the budget allows steps over that many samples."""

    def say(self, text: str) -> None:
        """Tell the user which batch is tried and why."""


@dataclass(slots=True, kw_only=True)
class Largest:
    """The largest batch and its proof; `fails_at` is the smallest batch that failed, None if the cap fits.

    `ceiling` says why no batch above the cap was tried.
    """

    batch: int
    cap: int
    limit_bytes: int
    fails_at: int | None = None
    fails_with: End | None = None
    line: MemoryLine | None = None
    residual: float = 0.0
    predicted: int | None = None
    launches: int = 0
    num_oom: int = 0
    complete: bool = True
    settled: bool = False
    ceiling: str = "a larger one would not help"
    notes: list[str] = field(default_factory=list)

    @property
    def proof(self) -> str:
        """How the batch is known, as words that follow it."""
        if not self.is_proved:
            return "run, but not proved"
        return "proved from both sides" if self.fails_at is not None else f"proved from below: {self.ceiling}"

    @property
    def is_proved(self) -> bool:
        """Whether both sides are proved: the batch ran, and its neighbour failed or it is the cap."""
        return self.complete and (self.batch == self.cap or self.fails_at is not None)


class NothingFitsError(GpudocError):
    """Not even batch 1 fits: `needed_bytes` is its peak without a limit, None if that cannot be measured."""

    def __init__(self, message: str, *, hint: str, needed_bytes: int | None, limit_bytes: int) -> None:
        super().__init__(message, hint=hint, exit_code=ExitCode.BAD_ANSWER)
        self.needed_bytes = needed_bytes
        self.limit_bytes = limit_bytes


def predict_largest(prober: Prober, *, limit_bytes: int, cap: int) -> int | None:
    """The largest batch that one calibrating process predicts: 0 if batch 1 fails, None if memory does not grow."""
    search = _Search(prober, limit_bytes, cap)
    try:
        search.calibrate()
    except NothingFitsError:
        return 0
    return search.predicted


def find_largest(prober: Prober, *, limit_bytes: int, cap: int, expected: MemoryLine | None = None) -> Largest:
    """Run the search; NothingFitsError if not even batch 1 fits, TimeUpError if there was no time for one batch.

    With an `expected` line, the first probe is at the batch where the line meets the limit; without one, or if that
    probe fails, one process calibrates first.
    """
    search = _Search(prober, limit_bytes, cap)
    if expected is None or not search.starts_at(expected):
        search.calibrate()
    return search.probe()


def settle_largest(prober: Prober, found: Largest, *, steps: int) -> Largest:
    """Run the whole script on the found batch; find the largest batch that passes it if that runs out of memory."""
    trial = prober.steady(found.batch, steps=steps)
    found.launches += 1 if trial.end.is_memory else 0
    if trial.fits or trial.end is End.LEAK:
        found.settled = trial.fits
        if not trial.fits:
            found.notes.append(f"batch {found.batch}: {trial.detail}; it eventually runs out of memory at any batch")
        return found
    if trial.end is End.TIME_UP:
        found.notes.append(f"{BUDGET_ENDS} before batch {found.batch} went through a longer run")
        return found
    if not trial.end.is_too_large:
        raise GpudocError(f"batch {found.batch} failed in {trial.stage}: {trial.detail}", exit_code=ExitCode.BAD_ANSWER)
    found.notes.append(f"batch {found.batch} trains, but fails in {trial.stage}: {trial.detail[:160]}")
    reason: End = trial.end
    near = step = max(1, found.batch // 100)
    low, high, proved = 0, found.batch, 0
    while found.launches < MAX_LAUNCHES and high > 1 and proved < max(1, low) and _may_try(prober, low):
        # next to the smallest batch that fails, nothing is left to search: run the whole script at once
        batch = low if low and high - low <= near else (low + high) // 2 if low else max(1, high - step)
        whole = high - batch <= near
        attempt = prober.steady(batch, steps=steps if whole else 2)
        found.launches += 1
        found.num_oom += 0 if attempt.fits else 1
        if attempt.fits:
            low, proved = batch, batch if whole else 0
        else:
            low, high, reason, step = (0 if low == batch else low), batch, attempt.end, step * 2
    if low == 0:
        raise _nothing_fits(prober, found.limit_bytes, trial)
    found.batch, found.fails_at, found.fails_with = low, high, reason
    found.settled = proved == low
    return found


def _may_try(prober: Prober, low: int) -> bool:
    return low == 0 or prober.can_afford(8.0 * low)


class _Search:
    def __init__(self, prober: Prober, limit_bytes: int, cap: int) -> None:
        self._prober = prober
        self._limit = limit_bytes
        self._points: tuple[Point, ...] = ()
        self._fresh: dict[int, int] = {}
        self._line: MemoryLine | None = None
        self._low = 0
        self._high: int | None = None
        self._num_fits = 0
        self._num_fails = 0
        self._num_inside = 0
        self._is_late = False
        self._found = Largest(batch=0, cap=cap, limit_bytes=limit_bytes)

    def starts_at(self, expected: MemoryLine) -> bool:
        """Whether one probe ran at the batch where the expected line meets the limit; the line then goes through it."""
        batch = max(1, min(self._found.cap, expected.largest(self._limit)))
        self._line = expected
        self._found.predicted = batch
        if not self._prober.can_afford(4.0 * batch):
            # the line still gives the prediction; one process then shows which batch it reaches in the time
            return False
        self._try(batch)
        if self._low == 0:
            # the line is of no use, and a calibration that ends early leaves none
            self._line = None
        return self._low > 0

    @property
    def predicted(self) -> int | None:
        """The largest batch that the calibration predicts, at most the cap; None without a line."""
        return self._found.predicted

    def calibrate(self) -> None:
        """Run one process with rising batches as far as they are safe, and fit the first line."""
        trial = self._prober.calibrate(self._found.cap)
        self._found.launches += 1
        # peaks are a little high in a process that ran other batches before: the first prediction is on the safe side
        self._points = trial.points
        if trial.end is End.TIME_UP:
            self._is_late = True
        elif not trial.fits:
            if not trial.end.is_too_large:
                raise GpudocError(f"calibrating stopped: {trial.detail}", exit_code=ExitCode.BAD_ANSWER)
            if trial.failed_batch == 1 or not trial.points:
                raise _nothing_fits(self._prober, self._limit, trial)
            self._found.num_oom += 1
        exponent = growth_exponent(self._points)
        if exponent is not None and exponent > NOT_AFFINE:
            self._found.notes.append(
                f"memory grows with the batch to the power {exponent:.1f}, not in proportion (as in-batch "
                "contrastive losses do)"
            )
        self._line = fit_memory(self._points) or self._line
        if self._line is not None:
            self._found.predicted = min(self._found.cap, self._line.largest(self._limit))

    def probe(self) -> Largest:
        """Probe in fresh processes until both sides are proved, or the budget is used up."""
        while self._found.launches < MAX_LAUNCHES:
            batch = self._propose()
            if batch is None:
                break
            if not self._is_late and self._prober.can_afford(4.0 * batch):
                self._try(batch)
            else:
                self._is_late = True
            if self._is_late:
                self._give_up(batch)
                break
        return self._finish()

    def _try(self, batch: int) -> None:
        self._prober.say(self._why(batch))
        trial = self._prober.fit(batch)
        self._found.launches += 1
        if trial.fits:
            self._num_fits += 1
            self._low = max(self._low, batch)
            point = trial.point(batch)
            if point is not None and point.peak_bytes is not None:
                self._fresh[batch] = point.peak_bytes
                self._refit()
            return
        if trial.end is End.TIME_UP:
            self._is_late = True
            return
        if trial.end is End.HANG or not (trial.end.is_too_large or trial.end is End.SIGNAL):
            raise GpudocError(f"batch {batch} stopped in {trial.stage}: {trial.detail}", exit_code=ExitCode.BAD_ANSWER)
        self._found.num_oom += 1 if trial.end.is_memory else 0
        self._num_fails += 1
        if self._high is None or batch < self._high:
            self._high, self._found.fails_at, self._found.fails_with = batch, batch, trial.end
        if trial.end is End.SIGNAL:
            self._found.notes.append(f"batch {batch}: {trial.detail}")

    def _refit(self) -> None:
        batches = sorted(self._fresh)
        last = batches[-1]
        known = self._fresh[last] - self._fresh[batches[0]]
        if self._line is None or (len(batches) > 1 and (last >= 1.5 * batches[0] or known >= _TELLING_BYTES)):
            low = batches[0] if len(batches) > 1 else self._points[-1].batch
            low_peak = self._fresh.get(low) or self._points[-1].peak_bytes or 0
            if last > low and self._fresh[last] > low_peak:
                slope = (self._fresh[last] - low_peak) / (last - low)
                self._line = MemoryLine(batch=last, peak_bytes=self._fresh[last], bytes_per_sample=slope)
                return
        if self._line is not None:
            self._line = self._line.through(last, self._fresh[last])

    def _propose(self) -> int | None:
        """The next batch to try; None if nothing is left to prove."""
        cap, low, high = self._found.cap, self._low, self._high
        if low >= cap:
            return None
        predicted = min(cap, self._line.largest(self._limit)) if self._line else min(cap, 2 * self._highest_run())
        around = max(low, predicted) if high is None else min(high, max(low, predicted))
        gap = self._line.gap(around) if self._line else 1
        if high is not None and (high - low <= gap or high == low + 1):
            return None
        if high is None:
            return self._upward(predicted, gap)
        if low == 0:
            return self._downward(predicted, gap)
        self._num_inside += 1
        if self._num_inside > _BISECT_AFTER:
            return (low + high) // 2
        # a prediction outside the known interval is wrong: each time, the next batch moves further away from it
        step = gap << (self._num_inside - 1)
        if predicted <= low:
            return min(low + step, high - 1)
        if predicted >= high:
            return max(low + 1, min(high - 1, max(low + gap, high - step)))
        return predicted

    def _upward(self, predicted: int, gap: int) -> int:
        cap, low = self._found.cap, self._low
        if low == 0:
            return cap if predicted >= cap else max(1, predicted - gap // 2)
        if predicted <= low + gap:
            # the prediction is nearly reached: prove that the next batch fails, and step further each time it does not
            surplus = max(0, self._num_fits - 3)
            return min(cap, low + (gap << surplus))
        # far beyond the measured batches even a good slope misses: a slightly smaller batch fits and improves the line
        margin = int(_FAR_MARGIN * predicted) if predicted > 2 * low and gap > 1 and predicted < cap else gap // 2
        return min(cap, max(low + 1, predicted - margin))

    def _downward(self, predicted: int, gap: int) -> int:
        high = self._high or 1
        floor = max((p.batch for p in self._points if p.batch < high), default=1)
        step = max(gap, high // 100) << max(0, self._num_fails - 1)
        target = high - step
        if predicted < high:
            target = min(predicted, target)
        return max(1, target if target > floor else max(floor, high // 2) if floor < high else high - 1)

    def _highest_run(self) -> int:
        return max([1, self._low, *(point.batch for point in self._points)])

    def _why(self, batch: int) -> str:
        if self._line is None:
            return f"trying batch {batch}: memory does not grow with the batch yet"
        expected = self._line.at(batch)
        relation = "within" if expected <= self._limit else "over"
        return (
            f"trying batch {batch}: {format_bytes(expected)} expected, {relation} the limit of "
            f"{format_bytes(self._limit)}"
        )

    def _give_up(self, batch: int) -> None:
        """End the search because the budget is used up: keep the batches that ran, and name the prediction."""
        self._found.complete = False
        if self._low == 0:
            self._low = max((point.batch for point in self._points), default=0)
        if self._low == 0:
            raise TimeUpError("no time was left to run one batch")
        predicted = "" if self._found.predicted is None else f"; {self._found.predicted:,} is predicted to fit"
        self._found.notes.append(f"{BUDGET_ENDS} before batch {batch:,} could be proved{predicted}")

    def _finish(self) -> Largest:
        found = self._found
        found.batch, found.line = self._low, self._line
        if self._line is not None:
            found.predicted = min(found.cap, self._line.largest(self._limit))
            found.residual = residual_bytes(self._points, self._line)
        above = [p.batch for p in self._points if found.fails_at is not None and p.batch > found.fails_at]
        if above:
            found.notes.append(f"not monotone: batch {found.fails_at} fails although {max(above)} ran")
        if self._low == 0:
            raise GpudocError(
                f"no batch could be run: batch {found.fails_at} failed",
                hint="allow more time: --budget 15m",
                exit_code=ExitCode.BAD_ANSWER,
            )
        return found


def _nothing_fits(prober: Prober, limit_bytes: int, trial: Trial) -> NothingFitsError:
    """The error for a batch 1 that does not fit: how much is missing, and what would make it fit."""
    needed = prober.needed_bytes(1)
    if needed is None:
        missing = f"it failed in {trial.stage}: {trial.detail[:200]}"
        hint = "use a smaller model, a lower precision, or a larger --memory-limit"
    else:
        over = max(0, needed - limit_bytes)
        missing = f"batch 1 needs {format_bytes(needed)}, {over:,} bytes more"
        hint = f"--memory-limit {needed * 105 // 100 // 2**20 + 1}MiB, a smaller model, or shorter samples"
    return NothingFitsError(
        f"nothing fits in {format_bytes(limit_bytes)}: {missing}",
        hint=hint,
        needed_bytes=needed,
        limit_bytes=limit_bytes,
    )
