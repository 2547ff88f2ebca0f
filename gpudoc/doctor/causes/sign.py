"""What the finders of texts share: patterns compiled once, a line as evidence."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gpudoc.doctor.model import Evidence, Finder, Finding, Observation, Skip, observe
from gpudoc.facts.readers.model import Mention, Text
from gpudoc.facts.readers.words import Words

# compiled patterns by their alternatives: rules are asked many times in one process
_known: dict[tuple[str, ...], Words] = {}


def words(*alternatives: str) -> Words:
    """One case-blind pattern of several; a blank in it stands for any white space, so wrapped lines match too."""
    if alternatives not in _known:
        _known[alternatives] = Words(*alternatives)
    return _known[alternatives]


# "torch.cuda.is_available() ... False", as a session, a sentence or another language puts it
UNAVAILABLE = (
    r"is_available(?:\(\))?(?:(?!\btrue\b|is_available)[^\n]){0,24}?\W{0,8}(?:Out\[\d+\]: ?)?(?:False|Flase)\b"
)


def quote(mention: Mention, fact: str = "text") -> Observation:
    """The line of a mention as evidence."""
    return observe(fact, mention.line.text, mention.line.origin, words=mention[0].split("\n")[0][:40])


def by_text(cause_id: str, find: Callable[[Text], Iterator[Finding | Skip]]) -> Finder:
    """A finder that sees the text and nothing else."""
    return text_finder(cause_id, lambda text, _: find(text))


def text_finder(cause_id: str, find: Callable[[Text, Evidence], Iterator[Finding | Skip]]) -> Finder:
    """A finder that wants the text and the evidence it stands in."""

    def look(evidence: Evidence) -> Iterator[Finding | Skip]:
        assert evidence.reading is not None
        yield from find(evidence.reading.text, evidence)

    return Finder(id=cause_id, find=look, reads="text")
