"""The deadline of a search, which limits every wait for a process of its trials."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from gpudoc.errors import GpudocError
from gpudoc.progress import Progress
from gpudoc.units import format_seconds

# share of the time left that one silent process may use, so that there is time to try something else
_HANG_SHARE = 1 / 3
# a busy machine makes a launch slower than the last one
_SLOWER = 1.5


class TimeUpError(GpudocError):
    """The budget ended before anything could be measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadline:
    """`budget_s` seconds from `since` on, by a clock that counts seconds; without a budget there is no end."""

    budget_s: float = math.inf
    since: float = field(default_factory=time.monotonic)
    clock: Callable[[], float] = time.monotonic

    @property
    def spent_s(self) -> float:
        """Seconds since the search began."""
        return self.clock() - self.since

    @property
    def left_s(self) -> float:
        """Seconds until the end; 0 once it has passed."""
        return max(0.0, self.budget_s - self.spent_s)

    @property
    def told(self) -> str:
        """For the end of a sentence on what could not be done: 'the budget of 15 s was used up'."""
        return f"the budget of {format_seconds(self.budget_s)} was used up"

    @property
    def hint(self) -> str:
        """The option for a search that was ended before it could try anything."""
        return option_for(4 * self.budget_s)

    def show(self, progress: Progress, text: str) -> None:
        """Show how much of the budget is used, and the current work."""
        total_s = self.budget_s if math.isfinite(self.budget_s) else 0.0
        progress.advance(min(self.spent_s, total_s), total_s, text)

    def patience_s(self, usual_s: float, expected_s: float = 0.0) -> float:
        """Seconds to wait for a process that may hang: as usual, but at most a third of the time that is left.

        A process that should take `expected_s` gets 1.5 times as long if that is more than the third, up to the end.
        """
        most_s = max(_HANG_SHARE * self.left_s, _SLOWER * expected_s)
        return min(usual_s, most_s, self.left_s)


def option_for(seconds: float) -> str:
    """The option that gives a search at least `seconds`, in round figures: '--budget 40s', '--budget 3m'."""
    tens = 10 * math.ceil(seconds / 10)
    return f"--budget {tens}s" if tens < 120 else f"--budget {math.ceil(seconds / 60)}m"
