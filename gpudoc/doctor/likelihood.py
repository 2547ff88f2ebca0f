"""The causes that a person's words make likely if no printed line proves one, and how likely they are."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from gpudoc.doctor import complaint
from gpudoc.doctor.causes.sign import quote
from gpudoc.doctor.model import Cause, Finding, Observation, Severity, observe
from gpudoc.doctor.statements import stated
from gpudoc.facts.readers.model import CleanText, Mention, Reading, named_facts
from gpudoc.facts.readers.words import Words
from gpudoc.knowledge import wording
from gpudoc.knowledge.wording import FACT, HEALTHY, OTHER, Likelihood, rarity, weigh

# a guess that is right less often than 0.3 (the first) or 0.15 (the others) misleads more than it helps
_LEAST_FIRST, _LEAST_SURE, _DOUBTED = 0.3, 0.15, 0.5
_MOST_CANDIDATES, _MOST_LINES = 3, 3
# the least likelihood of health if nothing is wrong, for a text that asks something, asks why, asks and complains, or
# does none of these; tables that had not seen 154 threads separated 145 of them correctly with these values
ASKS, ASKS_WHY, COMPLAINS, SAYS, _SURE_OF_TROUBLE = 0.06, 0.3, 0.9, 0.15, 0.6
# shorter texts say too little about trouble, or about the likelihood of health
_A_LINE, _SOME_LINES = 20, 80
# doctor called 61 threads healthy: the 49 with nothing wrong all had a larger share of health than this
_SURELY_ILL = 0.05
# a word in fewer than one in twenty reports says something about the cause; two such words are two signs
_TELLING_RARITY, _FEWEST_SIGNS, _WORDS_TRIED = 2.6, 2, 12
# a fact says something if at most one report in three states it
_TELLING_FACT = 1.1
WORDS = "said"
# the prefix of statements in the table
_STATED = "stated:"
_ONLY_ASKED = {"asked-if-normal", "asked-of-meaning"}
# statements that also occur if nothing is wrong
_AT_EASE = _ONLY_ASKED | (
    {"docker", "mixed-precision", "several-gpus", "several-nodes", "starts-slowly", "windows", "training", "question"}
    | {"complaint", "request", "writes", "one-sample", "in-evaluation"}
    | {"gpu-full", "host-memory"}
)


def likely_causes(reading: Reading, *, is_proved: bool = False) -> list[Likelihood]:
    """The causes that the words and facts of a text make likely, the likeliest first; empty if it has too few words.

    After a proven finding, statements are not searched for: they would only say the same again.
    """
    return weigh(reading.text.flat, named_facts(reading) if is_proved else facts_of(reading))


def facts_of(reading: Reading) -> frozenset[str]:
    """The signs to learn from besides words: the facts that were read, and the facts that a person states."""
    return named_facts(reading).union(f"{_STATED}{name}" for name in stated(reading.text))


def weight(finding: Finding, likely: Sequence[Likelihood]) -> float:
    """The weight of a finding: its confidence and, as a second sign, the likelihood of its cause from words."""
    sure = next((one.sure for one in likely if one.cause == finding.id), 0.0)
    return 1 - (1 - finding.confidence) * (1 - sure)


def calibrated(found: Sequence[Finding], likely: Sequence[Likelihood]) -> list[Finding]:
    """The findings in a text, each with the confidence with which findings like it were right.

    Notes stay as they are: the reports in the training data say nothing about things that are not faults.
    """
    sure, weights = {one.cause: one.sure for one in likely}, wording.table().shown
    return [
        f
        if f.severity == "info"
        else replace(f, confidence=round(wording.shown_as(f.confidence, sure.get(f.id), weights), 3))
        for f in found
    ]


def is_at_ease(reading: Reading, likely: Sequence[Likelihood], least: float) -> bool:
    """Whether the likelihood that nothing is wrong is at least `least`, and no statement may be trouble."""
    return bool(likely) and _health(likely) >= least and stated(reading.text).keys() <= _AT_EASE


def trouble(reading: Reading, likely: Sequence[Likelihood], least: float) -> bool:
    """Whether words describe trouble that is in no list of complaints, and a statement may be trouble."""
    is_ill = bool(likely) and likely[0].sure >= _SURE_OF_TROUBLE and _health(likely) < least
    return is_ill and not stated(reading.text).keys() <= _AT_EASE


def tells_of_trouble(reading: Reading, likely: Sequence[Likelihood], least: float = SAYS) -> bool:
    """Whether somebody describes trouble in words that no list of complaints contains."""
    return _is_told(reading) and trouble(reading, likely, least)


def sounds_ill(reading: Reading) -> bool:
    """Whether a person's words all but exclude health, even if they do not show the cause."""
    text = reading.text
    if not _is_told(reading, _SOME_LINES) or not (complaint.speaks(text) or complaint.question(text)):
        return False
    likely = likely_causes(reading)
    return bool(likely) and _health(likely) < _SURELY_ILL and not stated(text).keys() & _ONLY_ASKED


def _is_told(reading: Reading, least: int = _A_LINE) -> bool:
    return complaint.told_length(reading.text) >= least and not complaint.is_failure(reading.text)


def _health(likely: Sequence[Likelihood]) -> float:
    return sum(one.share for one in likely if one.cause in (HEALTHY, OTHER))


def guess(
    text: CleanText,
    likely: Sequence[Likelihood],
    found: Sequence[Finding],
    catalogue: Mapping[str, Cause],
    unwanted: Collection[str] = (),
) -> tuple[Finding, ...]:
    """Up to three of the likeliest causes, the likeliest first, without those already found or unwanted.

    A person complains, so "healthy" is not an answer. Each guess rests on at least two signs: words that few reports
    have, in the lines that are its evidence.
    """
    likely = _unhealthy(likely)
    if not likely or likely[0].cause == OTHER:
        return ()
    named = {finding.id for finding in found}
    wanted = [one for one in likely if one.cause in catalogue and one.cause not in unwanted]
    if not wanted or wanted[0].sure < _LEAST_FIRST:
        return ()
    guesses = []
    for one in wanted[:_MOST_CANDIDATES]:
        lines = _lines(text, one)
        if one.sure >= _LEAST_SURE and one.cause not in named and lines:
            confidence = round(one.sure, 3)
            guesses.append(Finding(id=one.cause, severity="info", confidence=confidence, evidence=lines, is_guess=True))
    return tuple(guesses)


def _unhealthy(likely: Sequence[Likelihood]) -> list[Likelihood]:
    """The answers without "nothing is wrong"; its share goes to the others."""
    rest = [one for one in likely if one.cause != HEALTHY]
    if len(rest) == len(likely):
        return rest
    total, certainty = sum(one.share for one in rest), wording.table().certainty
    shares = [one.share / total for one in rest]
    return [replace(one, share=s, sure=wording.sure_of(s, certainty)) for one, s in zip(rest, shares, strict=True)]


def _lines(text: CleanText, one: Likelihood) -> tuple[Observation, ...]:
    """The lines with the words that spoke most for a cause; none if they hold fewer than two signs."""
    states = stated(text)
    facts = [name for fact in one.facts if _is_telling_fact(fact) and (name := fact.removeprefix(_STATED)) in states]
    told = [observe(WORDS, states[name].text, states[name].origin) for name in facts]
    signs: dict[str, Mention] = {}
    for word in (word for word in one.words[:_WORDS_TRIED] if rarity(word) >= _TELLING_RARITY):
        # for a Russian word, the table holds only the beginning
        mention = text.find(Words(rf"{word}(?<![a-z0-9_]{word})"))
        # a word that contains another is not a further sign
        if mention is not None and not any(part in word or word in part for part in signs):
            signs[word] = mention
    if len(signs) + len(facts) < _FEWEST_SIGNS:
        return ()
    return tuple(dict.fromkeys((*told, *(quote(mention, WORDS) for mention in signs.values()))))[:_MOST_LINES]


def _is_telling_fact(fact: str) -> bool:
    """Whether the fact is a statement, and at most one report in three states it."""
    return fact.startswith(_STATED) and rarity(f"{FACT}{fact}") >= _TELLING_FACT


def is_doubted(finding: Finding) -> bool:
    """Whether a finding rests only on a message that is seldom right among such words; figures are facts."""
    return finding.confidence < _DOUBTED and finding.evidence[0].fact == "text"


def cap_confidence(ranked: Sequence[Finding]) -> list[Finding]:
    """The findings; none is shown as surer than a finding of the same severity above it, the likelier cause."""
    least: dict[Severity, float] = {}
    fallen = []
    for one in ranked:
        if one.severity != "info":
            least[one.severity] = min(one.confidence, least.get(one.severity, 1.0))
            one = replace(one, confidence=least[one.severity])
        fallen.append(one)
    return fallen
