"""What somebody's words make likely where nothing printed proves a cause, and how likely."""

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

# a guess that is right less often than this misleads more than it helps
_LEAST_FIRST, _LEAST_SURE, _DOUBTED = 0.3, 0.15, 0.5
_MOST_CANDIDATES, _MOST_LINES = 3, 3
# how likely health is at least where nothing is wrong: where somebody asks something, asks why, asks and complains, or
# does neither; of 154 threads 145 were told apart so by tables that had not seen them
ASKS, ASKS_WHY, COMPLAINS, SAYS, _SURE_OF_TROUBLE = 0.06, 0.3, 0.9, 0.15, 0.6
# what is shorter says too little of trouble, or too little of how likely health is
_A_LINE, _SOME_LINES = 20, 80
# of 61 threads that doctor called healthy, none of the 49 with nothing wrong was less likely to be so than this
_SURELY_ILL = 0.05
# a word of fewer reports than one in twenty says something of the cause; two such are two signs
_TELLING_RARITY, _FEWEST_SIGNS, _WORDS_TRIED = 2.6, 2, 12
# and a fact that one in three states
_TELLING_FACT = 1.1
WORDS = "said"
# what is stated, as the table names it
_STATED = "stated:"
_ONLY_ASKED = {"asked-if-normal", "asked-of-meaning"}
# what is stated where nothing is wrong, too
_AT_EASE = _ONLY_ASKED | (
    {"docker", "mixed-precision", "several-gpus", "several-nodes", "starts-slowly", "windows", "training", "question"}
    | {"complaint", "request", "writes", "one-sample", "in-evaluation"}
    | {"gpu-full", "host-memory"}
)


def likely_causes(reading: Reading, *, is_proved: bool = False) -> list[Likelihood]:
    """What the words and the facts of a text make likely, the likeliest first; empty for one of too few words.

    Next to a proven finding, what people state is not searched for: it would only say the same again.
    """
    return weigh(reading.text.flat, named_facts(reading) if is_proved else facts_of(reading))


def facts_of(reading: Reading) -> frozenset[str]:
    """What is learned from besides words: the facts that were read, and those that are stated in whatever words."""
    return named_facts(reading).union(f"{_STATED}{name}" for name in stated(reading.text))


def weight(finding: Finding, likely: Sequence[Likelihood]) -> float:
    """What a finding weighs against others: its confidence and, as a second sign, how likely words make its cause."""
    sure = next((one.sure for one in likely if one.cause == finding.id), 0.0)
    return 1 - (1 - finding.confidence) * (1 - sure)


def calibrated(found: Sequence[Finding], likely: Sequence[Likelihood]) -> list[Finding]:
    """What finders found in a text, each as sure as findings of its confidence and its words were right.

    Notes stay as they are: the reports that are learned from say nothing of what is not a fault.
    """
    sure, weights = {one.cause: one.sure for one in likely}, wording.table().shown
    return [
        f
        if f.severity == "info"
        else replace(f, confidence=round(wording.shown_as(f.confidence, sure.get(f.id), weights), 3))
        for f in found
    ]


def is_at_ease(reading: Reading, likely: Sequence[Likelihood], least: float) -> bool:
    """Whether words and facts make it so likely that nothing is wrong, and nothing is stated that may be trouble."""
    return bool(likely) and _health(likely) >= least and stated(reading.text).keys() <= _AT_EASE


def trouble(reading: Reading, likely: Sequence[Likelihood], least: float) -> bool:
    """Whether words describe trouble that no list of complaints knows, and something is stated that may be."""
    is_ill = bool(likely) and likely[0].sure >= _SURE_OF_TROUBLE and _health(likely) < least
    return is_ill and not stated(reading.text).keys() <= _AT_EASE


def tells_of_trouble(reading: Reading, likely: Sequence[Likelihood], least: float = SAYS) -> bool:
    """Whether somebody describes trouble in words that no list of complaints contains."""
    return _is_told(reading) and trouble(reading, likely, least)


def sounds_ill(reading: Reading) -> bool:
    """Whether somebody's words all but rule out that nothing is wrong, although they do not show what is."""
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
    """Up to three of the likeliest causes, none already found and none unwanted, the likeliest first.

    Somebody complains, so that nothing is healthy. Each guess rests on two signs at least: words that few reports
    hold, in the lines that are its evidence.
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
    """The answers without the one that nothing is wrong, whose share the others get."""
    rest = [one for one in likely if one.cause != HEALTHY]
    if len(rest) == len(likely):
        return rest
    total, certainty = sum(one.share for one in rest), wording.table().certainty
    shares = [one.share / total for one in rest]
    return [replace(one, share=s, sure=wording.sure_of(s, certainty)) for one, s in zip(rest, shares, strict=True)]


def _lines(text: CleanText, one: Likelihood) -> tuple[Observation, ...]:
    """The lines that hold the words that spoke for it most; none where these are not two signs."""
    states = stated(text)
    facts = [name for fact in one.facts if _is_telling_fact(fact) and (name := fact.removeprefix(_STATED)) in states]
    told = [observe(WORDS, states[name].text, states[name].origin) for name in facts]
    signs: dict[str, Mention] = {}
    for word in (word for word in one.words[:_WORDS_TRIED] if rarity(word) >= _TELLING_RARITY):
        # the table holds the beginning of a Russian word
        mention = text.find(Words(rf"{word}(?<![a-z0-9_]{word})"))
        # a word that holds another is no further sign
        if mention is not None and not any(part in word or word in part for part in signs):
            signs[word] = mention
    if len(signs) + len(facts) < _FEWEST_SIGNS:
        return ()
    return tuple(dict.fromkeys((*told, *(quote(mention, WORDS) for mention in signs.values()))))[:_MOST_LINES]


def _is_telling_fact(fact: str) -> bool:
    """Whether it is stated, and by fewer than one in three."""
    return fact.startswith(_STATED) and rarity(f"{FACT}{fact}") >= _TELLING_FACT


def is_doubted(finding: Finding) -> bool:
    """Whether only a message says it, which is seldom right where it stands among such words; figures are facts."""
    return finding.confidence < _DOUBTED and finding.evidence[0].fact == "text"


def cap_confidence(ranked: Sequence[Finding]) -> list[Finding]:
    """The findings of one severity, none shown as surer than the one above it, which is likelier the cause."""
    least: dict[Severity, float] = {}
    fallen = []
    for one in ranked:
        if one.severity != "info":
            least[one.severity] = min(one.confidence, least.get(one.severity, 1.0))
            one = replace(one, confidence=least[one.severity])
        fallen.append(one)
    return fallen
