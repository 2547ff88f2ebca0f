"""Whether a series of memory figures grows steadily, as a leak does, and not in one step, as a cache does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from gpudoc.stats import fit_line, median

# below this a leak takes days to matter, and noise of the allocator looks the same
LEAST_BYTES_PER_S = 512 * 1024
# in less time a few slow steps look like a trend: a healthy job on a crowded machine rose by 15 MiB over 8 s and fell
LEAST_SECONDS = 12.0


@dataclass(frozen=True, slots=True)
class Growth:
    """Bytes at the begin and at the end, and the rate between them."""

    first: float
    last: float
    bytes_per_s: float


def grows(series: Sequence[tuple[float, int]]) -> Growth | None:
    """The growth of (seconds, bytes) when all quarters of the time grow alike; None otherwise."""
    if len(series) < 8 or series[-1][0] - series[0][0] < LEAST_SECONDS:
        return None
    # quarters by their medians: a single peak of a step moves neither
    size = len(series) // 4
    quarters = [median([b for _, b in series[i * size : (i + 1) * size]]) for i in range(4)]
    steps = [later - earlier for earlier, later in pairwise(quarters)]
    average = sum(steps) / 3
    if average <= 0 or min(steps) < 0.35 * average:
        return None
    line = fit_line([(t, float(b)) for t, b in series])
    rate = line.slope
    if line.residual > 0.5 * (quarters[3] - quarters[0]):
        return None
    if rate < LEAST_BYTES_PER_S or quarters[3] - quarters[0] < 0.01 * quarters[0]:
        return None
    return Growth(float(series[0][1]), float(series[-1][1]), rate)
