"""What a search may say first: faster, nothing of what was tried is faster, or not searched; pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from gpudoc.tune.model.gain import Gain

# why nothing was compared, where nothing else is the reason
TOO_SHORT = "the budget is too small for a first comparison"
Answered = Literal["faster", "slower", "none_faster", "not_compared", "not_searched"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchVerdict:
    """The answer of a search for speed, and how much it rests on.

    `tried` counts what was held against the default, by what it is: (3, 'lever'). `why` says why nothing was compared,
    or what was not searched next to what was; `needed_s` how long a search should take, None where more time would
    change nothing.
    """

    kind: Answered
    tried: tuple[tuple[int, str], ...] = ()
    why: str = ""
    needed_s: float | None = None

    @property
    def num_tried(self) -> int:
        """How many settings were held against the default."""
        return sum(count for count, _ in self.tried)

    def after_interrupt(self) -> SearchVerdict:
        """The same of a search that was interrupted, which needs no longer budget but to go on."""
        why = "it was interrupted before a first comparison" if self.why == TOO_SHORT else self.why
        return replace(self, why=why, needed_s=None)

    def document(self) -> dict[str, object]:
        """The answer as plain data."""
        counts = {what.replace(" ", "_"): count for count, what in self.tried}
        needed_s = None if self.needed_s is None else round(self.needed_s)
        return {"kind": self.kind, "tried": counts, "why": self.why or None, "needed_s": needed_s}


def judge(gain: Gain | None, tried: tuple[tuple[int, str], ...], why_not: str, needed_s: float | None) -> SearchVerdict:
    """The verdict on what was compared; `why_not` is said only where nothing was."""
    some = tuple((count, what) for count, what in tried if count)
    ratio = None if gain is None else gain.ratio
    if gain is not None and some and (gain.kept_default or (ratio is not None and not gain.is_sure)):
        slower = not gain.kept_default and ratio is not None and ratio.high < 1
        return SearchVerdict(kind="slower" if slower else "none_faster", tried=some)
    if gain is not None and gain.is_sure:
        return SearchVerdict(kind="faster", tried=some)
    return SearchVerdict(kind="not_compared" if some else "not_searched", tried=some, why=why_not, needed_s=needed_s)
