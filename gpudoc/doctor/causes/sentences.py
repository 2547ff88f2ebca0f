"""Words that stand in one sentence: who does what, whichever of the two is said first."""

from __future__ import annotations

from gpudoc.facts.readers.model import CleanText, Mention
from gpudoc.facts.readers.words import Words, Written
from gpudoc.patterns import Pattern

# a full stop within a number or a name ends nothing, and a line that goes on in small letters was only wrapped
_END = Pattern(r"[.!?](?=\s|$)|[。！？；;]|\n\s*(?![a-z(,])|\n\s*\n")
# where no end comes, as in a table or a listing, what is further away than this is not said of it
_REACH = 320
_MOST = 40


def together(text: CleanText, first: Words, *others: Words, without: Words | None = None) -> Mention | None:
    """The first place of `first` whose sentence holds each of `others` and nothing of `without`, or None."""
    if any(text.find(other) is None for other in others):
        return None
    for mention in text.find_all(first, most=_MOST):
        said = Written(_sentence(text.flat, *mention.match.span()))
        if without is not None and without.search(said) is not None:
            continue
        if all(other.search(said) is not None for other in others):
            return mention
    return None


def _sentence(flat: str, start: int, end: int) -> str:
    low = max(0, start - _REACH)
    before = [match.end() for match in _END.finditer(flat[low:start])]
    after = _END.search(flat[end : end + _REACH])
    return flat[low + before[-1] if before else low : end + (after.end() if after else _REACH)]
