"""Speed as a function of the batch: t = t0 + c·b, the knee, and the batches that are worth a run; pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpudoc.stats import fit_line, median_interval
from gpudoc.tune.trial.messages import Point

SAME_SHARE = 0.03
MEMORY_LEFT_SHARE = 0.08
_KNEE_SHARE = 0.95
_MISSES_SHARE = 0.1
_MAX_SIZES = 6


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds of a step: `fixed_s` for any batch, plus `per_sample_s` for every sample."""

    fixed_s: float
    per_sample_s: float

    def at(self, batch: int) -> float:
        """Seconds of a step at `batch`."""
        return self.fixed_s + self.per_sample_s * batch

    def fits(self, points: Sequence[Point]) -> bool:
        """Whether every measured step lies within a tenth of the line."""
        timed = [p for p in points if p.seconds]
        return all(abs(self.at(p.batch) - (p.seconds or 0.0)) <= _MISSES_SHARE * (p.seconds or 0.0) for p in timed)

    def knee(self) -> int | None:
        """The batch with 95 % of an endless batch's speed; None if the time does not grow with the batch."""
        if self.per_sample_s <= 0:
            return None
        return max(1, round(_KNEE_SHARE / (1 - _KNEE_SHARE) * self.fixed_s / self.per_sample_s))


def fit_step_time(points: Sequence[Point]) -> StepTime | None:
    """The line through the measured step times; None with fewer than two batches."""
    known = [(float(p.batch), p.seconds) for p in points if p.seconds is not None]
    if len({batch for batch, _ in known}) < 2:
        return None
    line = fit_line(known)
    return StepTime(max(0.0, line.intercept), max(0.0, line.slope))


def sizes_to_time(*, reference: int, largest: int, useful: int) -> tuple[int, ...]:
    """Batches to time: the reference, the largest useful one, powers of two from a quarter of the reference on."""
    top = max(1, min(largest, useful))
    sizes = {min(reference, top), top}
    size = max(1, 1 << max(0, (reference // 4).bit_length() - 1))
    while size < top:
        sizes.add(size)
        size *= 2
    ordered = sorted(sizes)
    while len(ordered) > _MAX_SIZES:
        # small batches are the least likely to win
        ordered.pop(0 if ordered[0] != reference else 1)
    return tuple(ordered)


def fastest(points: Sequence[Point]) -> Point | None:
    """The point with the most samples per second."""
    return max((p for p in points if p.samples_per_s), key=lambda p: p.samples_per_s or 0.0, default=None)


def speed_interval(point: Point) -> tuple[float, float]:
    """The least and the most samples per second that a point's steps allow; ValueError without any."""
    quick, slow = median_interval(point.step_s)
    # the point's middle is a measured step, which may be outside the interval by half a step
    middle = point.samples_per_s or 0.0
    return min(middle, point.batch / slow), max(middle, point.batch / quick)


def is_clearly_faster(point: Point, other: Point) -> bool:
    """Whether `point` is faster by more than SAME_SHARE, and by more than the steps of both vary."""
    share = (point.samples_per_s or 0.0) / (other.samples_per_s or 1.0)
    return share > 1 + SAME_SHARE and speed_interval(point)[0] > speed_interval(other)[1]


def pooled(points: Iterable[Point]) -> tuple[Point, ...]:
    """One point for each batch, with the steps of all points at that batch."""
    found: dict[int, Point] = {}
    for point in points:
        before = found.get(point.batch)
        steps = point.step_s if before is None else before.step_s + point.step_s
        found[point.batch] = point.model_copy(update={"step_s": steps})
    return tuple(found[batch] for batch in sorted(found))


def smallest_as_fast(points: Sequence[Point], share: float = SAME_SHARE, *, plain: int | None = None) -> Point | None:
    """The smallest batch whose speed is within `share` of the fastest.

    A batch from `plain` on, the default that needs no reason, also counts if the fastest is not clearly faster.
    """
    best = fastest(points)
    if best is None or best.samples_per_s is None:
        return None
    enough = (1 - share) * best.samples_per_s
    timed = [p for p in points if p.samples_per_s]
    unclear = [p for p in timed if plain is not None and p.batch >= plain and not is_clearly_faster(best, p)]
    return min([p for p in timed if (p.samples_per_s or 0.0) >= enough] + unclear, key=lambda p: p.batch)
