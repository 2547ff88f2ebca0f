"""Words that stand in one sentence: who does what, whichever of the two is said first."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoc.facts.patterns import Pattern
from gpudoc.facts.readers.model import Mention, Text
from gpudoc.facts.readers.words import Words

# a full stop within a number or a name ends nothing, and a line that goes on in small letters was only wrapped
_END = Pattern(r"[.!?](?=\s|$)|[。！？；;]|\n\s*(?![a-z(,])|\n\s*\n")
# where no end comes, as in a table or a listing, what is further away than this is not said of it
_REACH = 320
_MOST = 40


def together(text: Text, first: Words, *others: Words, without: Words | None = None, around: int = 0) -> Mention | None:
    """The first place of `first` whose sentence holds each of `others` and nothing of `without`; None if there is none.

    `around` takes so many sentences before and after it into the search for `others`; `without` means the sentence.
    """
    if any(text.find(other) is None for other in others):
        return None
    for mention in text.find_all(first, most=_MOST):
        start, end = mention.match.span()
        alone = _cut(text.flat, start, end, 0)
        if without is not None and without.search(alone, alone.lower()) is not None:
            continue
        said = _cut(text.flat, start, end, around) if around else alone
        lowered = said.lower()
        if all(other.search(said, lowered) is not None for other in others):
            return mention
    return None


def _cut(flat: str, start: int, end: int, around: int) -> str:
    begin = _before(flat, start, around)
    last = end
    for match in _ends(flat[end : end + _REACH * (around + 1)]):
        last = end + match
        around -= 1
        if around < 0:
            return flat[begin:last]
    return flat[begin : end + _REACH]


def _before(flat: str, start: int, around: int) -> int:
    low = max(0, start - _REACH * (around + 1))
    ends = list(_ends(flat[low:start]))
    if len(ends) <= around:
        return low
    return low + ends[-1 - around]


def _ends(part: str) -> Iterator[int]:
    last = -2
    for match in _END.finditer(part):
        # two ends without a word between them are one
        if part[last : match.start()].strip() or last < 0:
            yield match.end()
        last = match.end()
