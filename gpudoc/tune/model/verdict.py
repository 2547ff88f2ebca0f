"""The first statement about a search: faster, nothing that was tried is faster, or not searched; pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from gpudoc.tune.model.gain import Gain

# why nothing was compared, if there is no other reason
TOO_SHORT = "the budget is too small for a first comparison"
Answered = Literal["faster", "slower", "none_faster", "not_compared", "not_searched"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchVerdict:
    """The answer of a search for speed, and the amount of evidence for it.

    `tried` counts the settings that were compared with the default, by kind: (3, 'lever'). `why` says why nothing was
    compared, or which part was not searched; `needed_s` is how long a search should take, None if more time would not
    change anything.
    """

    kind: Answered
    tried: tuple[tuple[int, str], ...] = ()
    why: str = ""
    needed_s: float | None = None

    @property
    def num_tried(self) -> int:
        """How many settings were compared with the default."""
        return sum(count for count, _ in self.tried)

    def after_interrupt(self) -> SearchVerdict:
        """The same for an interrupted search, which does not need a longer budget but must be continued."""
        why = "it was interrupted before a first comparison" if self.why == TOO_SHORT else self.why
        return replace(self, why=why, needed_s=None)

    def document(self) -> dict[str, object]:
        """The answer as plain data."""
        counts = {what.replace(" ", "_"): count for count, what in self.tried}
        needed_s = None if self.needed_s is None else round(self.needed_s)
        return {"kind": self.kind, "tried": counts, "why": self.why or None, "needed_s": needed_s}


def judge(gain: Gain | None, tried: tuple[tuple[int, str], ...], why_not: str, needed_s: float | None) -> SearchVerdict:
    """The verdict on the compared settings; `why_not` is used only if nothing was compared."""
    some = tuple((count, what) for count, what in tried if count)
    ratio = None if gain is None else gain.ratio
    if gain is not None and some and (gain.kept_default or (ratio is not None and not gain.is_sure)):
        slower = not gain.kept_default and ratio is not None and ratio.high < 1
        return SearchVerdict(kind="slower" if slower else "none_faster", tried=some)
    if gain is not None and gain.is_sure:
        return SearchVerdict(kind="faster", tried=some)
    return SearchVerdict(kind="not_compared" if some else "not_searched", tried=some, why=why_not, needed_s=needed_s)
