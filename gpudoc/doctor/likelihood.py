"""What a text is about when no mechanism shows itself for sure: the likeliest causes by its words, and how likely."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from gpudoc.doctor.model import Cause, Finding, Observation, observe
from gpudoc.facts.patterns import Pattern
from gpudoc.facts.readers.model import Reading, Text
from gpudoc.facts.readers.named import named_facts
from gpudoc.knowledge.wording import HEALTHY, OTHER, Likelihood, weigh

# a mechanism as sure as this stands above whatever the words make likely
SHOWN = 0.7
# a cause that is likelier than not is said to be there, with its severity; the others are candidates
_TOLD = 0.5
_MOST_CANDIDATES, _LEAST_SURE = 3, 0.05
# a text whose words are those of no fault
_HEALTHY_SHARE = 0.5
_MOST_WORDS, _WORDS_TRIED = 3, 8


def guess(
    reading: Reading, found: Sequence[Finding], catalogue: Mapping[str, Cause], *, least: float = 0.0
) -> tuple[Finding, ...]:
    """Up to three causes that the words of the text make likeliest, none already found, the likeliest first.

    Where nothing fails the words must be those of a fault: nothing is guessed when the first is less sure than `least`.
    """
    likely = weigh(reading.text.flat, named_facts(reading))
    if not likely or (likely[0].cause == HEALTHY and likely[0].share >= _HEALTHY_SHARE):
        return ()
    named = {finding.id for finding in found}
    causes = [one for one in likely if one.cause in catalogue and one.sure >= _LEAST_SURE]
    if not causes or causes[0].sure < least:
        return ()
    shown = any(finding.confidence >= SHOWN and finding.severity != "info" for finding in found)
    told = _TOLD if not shown and likely[0].cause not in (HEALTHY, OTHER) else 1.0
    return tuple(
        Finding(
            id=one.cause,
            severity=catalogue[one.cause].severity if one.sure >= told else "info",
            confidence=round(one.sure, 3),
            evidence=_evidence(reading.text, one),
        )
        for one in causes[:_MOST_CANDIDATES]
        if one.cause not in named
    )


def _evidence(text: Text, one: Likelihood) -> tuple[Observation, ...]:
    """The words that spoke for it most, each with its line."""
    found: list[Observation] = []
    for word in one.words[:_WORDS_TRIED]:
        mention = text.find(Pattern(rf"(?i)(?<![a-z0-9_]){re.escape(word)}".replace(r"\ ", r"\W+")))
        if mention is not None and len(found) < _MOST_WORDS:
            found.append(observe("words", mention[0], mention.line.origin))
    return tuple(dict.fromkeys(found))
