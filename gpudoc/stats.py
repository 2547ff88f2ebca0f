"""Pure statistics on small samples; every function takes a plain sequence of numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


def quantile(values: Sequence[float], share: float) -> float:
    """The `share` (0 to 1) quantile by linear interpolation; ValueError on an empty sequence."""
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def median(values: Sequence[float]) -> float:
    """The middle value; ValueError on an empty sequence."""
    return quantile(values, 0.5)


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """About 95 % interval of the median from order statistics (binomial); the whole range below six values."""
    ordered = sorted(values)
    count = len(ordered)
    if count < 6:
        return ordered[0], ordered[-1]
    half = 1.96 * math.sqrt(count) / 2
    low = max(0, math.floor(count / 2 - half))
    high = min(count - 1, math.ceil(count / 2 + half) - 1)
    return ordered[low], ordered[high]


@dataclass(frozen=True, slots=True)
class FittedLine:
    """y = intercept + slope * x, with the largest absolute residual of the points it was fitted to."""

    intercept: float
    slope: float
    residual: float

    def at(self, x: float) -> float:
        """The line's y at `x`."""
        return self.intercept + self.slope * x


def fit_line(points: Sequence[tuple[float, float]]) -> FittedLine:
    """Least-squares line through `points`; ValueError with fewer than two distinct x."""
    if len({x for x, _ in points}) < 2:
        raise ValueError("a line needs two distinct x")
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread
    intercept = mean_y - slope * mean_x
    residual = max(abs(y - intercept - slope * x) for x, y in points)
    return FittedLine(intercept, slope, residual)


@dataclass(frozen=True, slots=True)
class Slope:
    """The median slope of all pairs of points, and about a 95 % interval of it."""

    value: float
    low: float
    high: float


def steady_slope(points: Sequence[tuple[float, float]]) -> Slope:
    """Theil and Sen's slope with its interval from Kendall's statistic; ValueError with fewer than two distinct x.

    One point in four may lie anywhere without changing it much.
    """
    slopes = sorted(
        (b[1] - a[1]) / (b[0] - a[0]) for i, a in enumerate(points) for b in points[i + 1 :] if a[0] != b[0]
    )
    if not slopes:
        raise ValueError("a slope needs two distinct x")
    count = len(points)
    half = 1.96 * math.sqrt(count * (count - 1) * (2 * count + 5) / 18) / 2
    low = max(0, math.floor(len(slopes) / 2 - half))
    return Slope(median(slopes), slopes[low], slopes[len(slopes) - 1 - low])
