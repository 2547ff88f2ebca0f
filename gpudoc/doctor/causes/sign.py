"""The smallest kind of finder: a mechanism's own words in a text, what must stand beside them, and what vetoes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gpudoc.doctor.model import Evidence, Finder, Finding, Observation, Severity, Skip, observe
from gpudoc.doctor.vocabulary import Listed
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


def about_training(text: Text) -> bool:
    """Whether the text speaks of training; else the words of a kernel log or a system list mean something else."""
    return text.find(_TRAINING) is not None


_TRAINING = Listed("training")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """Words that show a cause: `sure` is the confidence when `said` (and `also`) stand there and `unless` does not.

    `in_training` says that the words mean this only in a text about training.
    """

    id: str
    said: Words
    sure: float
    also: Words | None = None
    unless: Words | None = None
    severity: Severity = "broken"
    fact: str = "text"
    in_training: bool = False


def finder(sign: Sign) -> Finder:
    """The sign as a finder that reads text."""

    def find(evidence: Evidence) -> Iterator[Finding | Skip]:
        assert evidence.reading is not None
        text = evidence.reading.text
        first = text.find(sign.said)
        if first is not None and sign.in_training and not about_training(text):
            return
        if first is None or (sign.unless is not None and text.find(sign.unless) is not None):
            return
        beside = None if sign.also is None else text.find(sign.also)
        if sign.also is not None and beside is None:
            return
        seen = [quote(first, sign.fact)] + ([quote(beside, "beside it")] if beside is not None else [])
        yield Finding(id=sign.id, confidence=sign.sure, severity=sign.severity, evidence=tuple(dict.fromkeys(seen)))

    return Finder(id=sign.id, find=find, reads="text")


def finders(*signs: Sign) -> tuple[Finder, ...]:
    """Several signs as finders, in order."""
    return tuple(finder(s) for s in signs)


def quote(mention: Mention, fact: str = "text") -> Observation:
    """The line of a mention as evidence."""
    return observe(fact, _around(mention), mention.line.origin)


def by_text(cause_id: str, find: Callable[[Text], Iterator[Finding | Skip]]) -> Finder:
    """A finder that sees the text and nothing else."""
    return text_finder(cause_id, lambda text, _: find(text))


def text_finder(cause_id: str, find: Callable[[Text, Evidence], Iterator[Finding | Skip]]) -> Finder:
    """A finder that wants the text and the evidence it stands in."""

    def look(evidence: Evidence) -> Iterator[Finding | Skip]:
        assert evidence.reading is not None
        yield from find(evidence.reading.text, evidence)

    return Finder(id=cause_id, find=look, reads="text")


def _around(mention: Mention) -> str:
    line = mention.line.text.strip()
    if len(line) <= 160:
        return line
    # a long line is shown from a little before the words that matter
    begin = line.find(mention.match[0].split("\n")[0][:40])
    return line[max(0, begin - 20) : max(0, begin - 20) + 160] if begin >= 0 else line[:160]
