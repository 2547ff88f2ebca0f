"""What a text is about when no mechanism shows itself for sure: the likeliest causes by its words, and how likely."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from gpudoc.doctor.causes.sign import words
from gpudoc.doctor.model import Cause, Finding, Observation, observe
from gpudoc.facts.readers.model import Reading, Text
from gpudoc.facts.readers.named import named_facts
from gpudoc.knowledge import wording
from gpudoc.knowledge.wording import HEALTHY, OTHER, Likelihood, tokens, weigh

# a mechanism as sure as this stands above whatever the words make likely
SHOWN = 0.7
# a cause that is likelier than not is said to be there, with its severity; the others are candidates
_TOLD = 0.5
_MOST_CANDIDATES, _LEAST_SURE = 3, 0.05
# a text whose words are those of no fault
_HEALTHY_SHARE = 0.5
# where so little is left for the absence of a fault nobody needs to say that something is wrong
_NO_FAULT_SHARE = 0.05
# a text of fewer different words has candidates only
_FEWEST_TOLD = 24
_MOST_WORDS, _WORDS_TRIED = 3, 8
# what a guess has seen
WORDS = "words"


def likely_causes(reading: Reading) -> list[Likelihood]:
    """What the words and the facts of a text make likely, the likeliest first; empty for one of too few words."""
    return weigh(reading.text.flat, named_facts(reading))


def is_of_a_fault(text: Text, likely: Sequence[Likelihood]) -> bool:
    """Whether a text of some length is surely about a fault, of whichever, though nobody complains of one."""
    none = sum(one.share for one in likely if one.cause in (HEALTHY, OTHER))
    return bool(likely) and none < _NO_FAULT_SHARE and _is_told_at_length(text)


def _is_told_at_length(text: Text) -> bool:
    return len(set(tokens(text.flat))) >= _FEWEST_TOLD


def weight(finding: Finding, likely: Sequence[Likelihood]) -> float:
    """What a finding weighs beside others: its confidence and, as a second sign, how likely words make its cause."""
    sure = next((one.sure for one in likely if one.cause == finding.id), 0.0)
    return 1 - (1 - finding.confidence) * (1 - sure)


def calibrated(found: Sequence[Finding], likely: Sequence[Likelihood]) -> list[Finding]:
    """What finders found in a text, each as sure as findings of its confidence and its words were right.

    Notes stay as they are: of what is no fault the reports that are learned from say nothing.
    """
    sure, weights = {one.cause: one.sure for one in likely}, wording.table().shown
    return [
        f
        if f.severity == "info"
        else replace(f, confidence=round(wording.shown_as(f.confidence, sure.get(f.id), weights), 3))
        for f in found
    ]


def guess(
    text: Text,
    likely: Sequence[Likelihood],
    found: Sequence[Finding],
    catalogue: Mapping[str, Cause],
    *,
    least: float = 0.0,
    unwanted: Collection[str] = (),
) -> tuple[Finding, ...]:
    """Up to three of the likeliest causes, none already found and none unwanted, the likeliest first.

    Where nothing fails the words must be those of a fault: nothing is guessed when the first is less sure than `least`.
    """
    if not likely or (likely[0].cause == HEALTHY and likely[0].share >= _HEALTHY_SHARE):
        return ()
    named = {finding.id for finding in found}
    wanted = [one for one in likely if one.cause in catalogue and one.cause not in unwanted]
    causes = [one for one in wanted if one.sure >= _LEAST_SURE]
    if not causes or causes[0].sure < least:
        return ()
    shown = any(finding.confidence >= SHOWN and finding.severity != "info" for finding in found)
    sound = likely[0].cause not in (HEALTHY, OTHER) and _is_told_at_length(text)
    told = _TOLD if sound and not shown else 1.0
    return tuple(
        Finding(
            id=one.cause,
            severity=catalogue[one.cause].severity if one.sure >= told else "info",
            confidence=round(one.sure, 3),
            evidence=_evidence(text, one),
        )
        for one in causes[:_MOST_CANDIDATES]
        if one.cause not in named
    )


def _evidence(text: Text, one: Likelihood) -> tuple[Observation, ...]:
    """The words that spoke for it most, each with its line."""
    found: list[Observation] = []
    for word in one.words[:_WORDS_TRIED]:
        mention = text.find(words(_beginning(word)))
        if mention is not None and len(found) < _MOST_WORDS:
            found.append(observe(WORDS, mention[0], mention.line.origin))
    return tuple(dict.fromkeys(found))


def _beginning(word: str) -> str:
    """Where a word of the table begins, or a pair of neighbours, as an expression; it may go on."""
    first, *rest = word.split(" ")
    return r"\W+".join((rf"{first}(?<![a-z0-9_]{first})", *rest))
