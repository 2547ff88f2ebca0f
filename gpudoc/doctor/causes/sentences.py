"""Words that are in one sentence, in any order."""

from __future__ import annotations

from gpudoc.facts.readers.model import CleanText, Mention
from gpudoc.facts.readers.words import Words, Written
from gpudoc.patterns import Pattern

# a full stop inside a number or a name does not end a sentence, and a line that goes on in lower case is only wrapped
_END = Pattern(r"[.!?](?=\s|$)|[。！？；;]|\n\s*(?![a-z(,])|\n\s*\n")
# words further away than this do not belong together if no sentence ends, as in a table or a listing
_REACH = 320
_MOST = 40


def together(text: CleanText, first: Words, *others: Words, without: Words | None = None) -> Mention | None:
    """The first place of `first` whose sentence contains each of `others` and nothing of `without`, or None."""
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
