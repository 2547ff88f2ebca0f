"""How memory grows with the batch if every batch is a launch: larger batches until two peaks give a line."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gpudoc.tune.model.memory import fit_memory
from gpudoc.tune.trial.messages import Point, Trial
from gpudoc.units import MIB

# peaks of fresh processes that differ this much give a slope
_TELLING_BYTES = 8 * MIB
_MOST_LAUNCHES = 7
# a line is trusted up to this many times its largest batch: memory held by the imports hides the first samples
_MOST_AHEAD = 4


def climb(fit: Callable[[int], Trial], *, start: int, cap: int, limit_bytes: int) -> tuple[Trial, tuple[Point, ...]]:
    """The last trial, and the points of `start` and larger batches, or of smaller ones if `start` does not fit."""
    points: list[Point] = []
    batch = min(start, cap)
    trial = fit(batch)
    for _ in range(_MOST_LAUNCHES):
        if trial.fits and trial.points:
            points.append(trial.points[-1])
            following = _following(points, cap, limit_bytes)
            if following is None:
                break
            batch = following
        elif points or batch == 1 or not trial.end.is_too_large:
            break
        else:
            batch = max(1, batch // 4)
        trial = fit(batch)
    return trial, tuple(sorted(points, key=lambda point: point.batch))


def _following(points: Sequence[Point], cap: int, limit_bytes: int) -> int | None:
    """The next batch on the way up; None once a line through the peaks reaches the limit, or at the cap."""
    last = max(point.batch for point in points)
    line = fit_memory(points) if _is_line(points) else None
    if line is None:
        following = last * (2 if len(points) == 1 else 4)
    else:
        predicted = line.largest(limit_bytes)
        following = last if predicted <= _MOST_AHEAD * last else predicted // 2
    return min(cap, following) if last < min(cap, following) else None


def _is_line(points: Sequence[Point]) -> bool:
    known = [(point.batch, point.peak_bytes) for point in points if point.peak_bytes is not None]
    if len(known) < 2:
        return False
    return abs(known[-1][1] - known[0][1]) >= _TELLING_BYTES and max(known)[0] >= 2 * min(known)[0]
