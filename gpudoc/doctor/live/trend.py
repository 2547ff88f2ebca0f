"""Whether memory grows without end, as with a leak, or settles, as with caches and arenas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from gpudoc.frozen import dataclass
from gpudoc.stats import median, steady_slope
from gpudoc.units import format_bytes

# a leak below this takes days to matter, and the allocator's noise looks the same
LEAST_BYTES_PER_S = 512 * 1024
# in less time, a few slow steps look like a trend: a healthy job on a crowded machine rose 15 MiB in 8 s, then fell
LEAST_SECONDS = 12.0

_MOST_BLOCKS = 8
# all blocks but two add at least this part of the average, and the last three this part of the first three
_EVEN, _GOES_ON = 0.3, 0.6
# the least low end of the slope's interval, as a part of the slope
_SURE = 0.3


@dataclass(frozen=True, slots=True)
class Growth:
    """Bytes at the beginning and at the end, and the rate between them."""

    first: float
    last: float
    bytes_per_s: float

    def __str__(self) -> str:
        return f"{format_bytes(self.first)} to {format_bytes(self.last)}"


def grows(series: Sequence[tuple[float, int]], work: Sequence[tuple[float, float]] = ()) -> Growth | None:
    """The growth of (seconds, bytes) if it is even, lasts to the end and exceeds its noise; None otherwise.

    `work` holds CPU seconds at the same moments. A loop that a busy neighbour slows down leaks less per second but as
    much per CPU second, while a cache or an arena that settles takes less and less of both.
    """
    if len(series) < 8 or series[-1][0] - series[0][0] < LEAST_SECONDS:
        return None
    points = _by_work(series, dict(work))
    count = min(_MOST_BLOCKS, len(points) // 2)
    blocks = [points[i * len(points) // count : (i + 1) * len(points) // count] for i in range(count)]
    # kept memory is the part that stays when a step has freed all it took, so the low points count
    lows = [(sum(x for x, _ in block) / len(block), float(min(size for _, size in block))) for block in blocks]
    rises = [(later[1] - earlier[1]) / (later[0] - earlier[0]) for earlier, later in pairwise(lows)]
    rise = lows[-1][1] - lows[0][1]
    average = rise / (lows[-1][0] - lows[0][0])
    if average <= 0 or sum(each >= _EVEN * average for each in rises) < len(rises) - 2:
        return None
    # a cache that has just filled no longer grows in the last block
    tops = [max(size for _, size in block) for block in blocks[-2:]]
    at_last = min(rises[-1], (tops[1] - tops[0]) / (lows[-1][0] - lows[-2][0]))
    if at_last < _EVEN * average or sum(rises[-3:]) < _GOES_ON * sum(rises[:3]):
        return None
    spread = median([max(size for _, size in block) - min(size for _, size in block) for block in blocks])
    slope = steady_slope(lows)
    if rise < spread or slope.low < _SURE * slope.value:
        return None
    seconds = series[-1][0] - series[0][0]
    rate = slope.value * (points[-1][0] - points[0][0]) / seconds
    if rate < LEAST_BYTES_PER_S or rise < 0.01 * lows[0][1]:
        return None
    return Growth(float(series[0][1]), float(series[-1][1]), rate)


def _by_work(series: Sequence[tuple[float, int]], work: Mapping[float, float]) -> list[tuple[float, int]]:
    """The series over CPU seconds if all moments have them and they always rise, else over seconds."""
    done = [work.get(time_s) for time_s, _ in series]
    known = [value for value in done if value is not None]
    if len(known) < len(series) or any(later <= earlier for earlier, later in pairwise(known)):
        return list(series)
    return [(value, size) for value, (_, size) in zip(known, series, strict=True)]
