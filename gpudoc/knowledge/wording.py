"""What a report's words say about its cause: weights learned from public reports whose cause is known."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from gpudoc.frozen import dataclass
from gpudoc.knowledge.tables import FOLDER
from gpudoc.own_files import read_own_file
from gpudoc.patterns import Pattern

TABLE = "wording.tsv"
# two answers that are not causes: nothing is wrong, and the problem is one that doctor does not know
HEALTHY, OTHER = "healthy", "other"
_TOKEN = Pattern(r"[a-z_][a-z_0-9]{1,24}|[а-яё]{2,24}|[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]+")
# the same for a text without other letters; it compiles in a tenth of the time
_ASCII_TOKEN = Pattern(r"[a-z_][a-z_0-9]{1,24}")
_READ_CHARACTERS = 20_000
# Russian words change their endings
_STEM = 6
# for this many answers, the words that speak for them are listed
_TOLD = 12
# the table holds whole numbers
SCALE = 100
# fewer known words say nothing; for reports with 12 to 15 known words, it was right as often as it claimed
FEWEST_WORDS = 12
# a known fact says as much as this many words
WORDS_OF_A_FACT = 2
_LEAST_SHARE = 1e-6
# the words' likelihood of a finding's cause counts as at least this: hardly any report had less
_LEAST_SPOKEN = 0.02
# no answer is shown as surer than this
_SUREST = 0.99
# this mark precedes a fact
FACT = "="


@dataclass(frozen=True, slots=True)
class Likelihood:
    """One answer: its share of the likelihood, how often it is right when it is that likely, and the words for it.

    Shares sum to 1; `sure` was measured on reports that were not used for learning. The words and facts that say most
    come first; only the likeliest answers have any.
    """

    cause: str
    share: float
    sure: float
    words: tuple[str, ...]
    facts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LearnedTable:
    """The learned table: what it was learned from, its answers with their bias, and a line for each feature.

    `certainty` and `shown` are parameters of `sure_of` and `shown_as`. A line is the feature's rarity and place:weight
    for the answers that it speaks for or against; a line without weights only makes the word a known one.
    """

    manifest: Mapping[str, str]
    causes: tuple[str, ...]
    bias: tuple[float, ...]
    certainty: tuple[float, float]
    shown: tuple[float, float, float]
    rows: Mapping[str, str]


def tokens(text: str) -> list[str]:
    """The words of a text in order, as the table knows them; Chinese, Japanese and Korean as pairs of characters."""
    read = text[:_READ_CHARACTERS].lower()
    if read.isascii():
        return _ASCII_TOKEN.findall(read)
    return [token for found in _TOKEN.findall(read) for token in _split(found)]


def _split(found: str) -> Iterator[str]:
    if found[0] < "\u0400":
        yield found
    elif found[0] < "\u3040":
        yield found[:_STEM]
    elif len(found) == 1:
        yield found
    else:
        yield from (found[place : place + 2] for place in range(len(found) - 1))


def features(text: str, facts: Iterable[str] = ()) -> tuple[frozenset[str], frozenset[str]]:
    """The words of the text, and the facts that were read in it: the two blocks of the table."""
    return frozenset(tokens(text)), frozenset(f"{FACT}{fact}" for fact in facts)


def weigh(text: str, facts: Iterable[str] = ()) -> list[Likelihood]:
    """All answers of the table ('healthy' and 'other' among them), likeliest first; empty if it knows too few words.

    A softmax over the summed weights of the features present, each times its rarity; each block has unit length.
    """
    known = table()
    sums = list(known.bias)
    parts: list[tuple[str, float, list[tuple[int, float]]]] = []
    known_words = 0
    for number, block in enumerate(features(text, facts)):
        present = [(name, *parsed(known.rows[name])) for name in sorted(block) if name in known.rows]
        known_words += len(present) * (1, WORDS_OF_A_FACT)[number]
        length = math.sqrt(sum(rarity**2 for _, rarity, _ in present)) or 1.0
        parts += ((name, rarity / length, weights) for name, rarity, weights in present)
    if known_words < FEWEST_WORDS:
        return []
    for _, presence, weights in parts:
        for place, weight in weights:
            sums[place] += weight * presence
    highest = max(sums)
    powers = [math.exp(one - highest) for one in sums]
    total = sum(powers)
    likeliest = sorted(range(len(powers)), key=lambda place: (-powers[place], known.causes[place]))
    spoke: dict[int, list[tuple[float, str]]] = {place: [] for place in likeliest[:_TOLD]}
    for name, presence, weights in parts:
        for place, weight in weights:
            if weight > 0 and place in spoke:
                spoke[place].append((weight * presence, name))
    found = []
    for place in likeliest:
        share = powers[place] / total
        names = [name for _, name in sorted(spoke[place], reverse=True)] if place in spoke else []
        words = tuple(name for name in names if name[0] != FACT)
        facts = tuple(name[1:] for name in names if name[0] == FACT)
        found.append(Likelihood(known.causes[place], share, sure_of(share, known.certainty), words, facts))
    return found


def sure_of(share: float, certainty: tuple[float, float]) -> float:
    """How often an answer with this share is right; `certainty` is the slope and the shift of its log odds."""
    return 1 / (1 + math.exp(-certainty[0] * log_odds(share) - certainty[1]))


def shown_as(confidence: float, sure: float | None, weights: tuple[float, float, float]) -> float:
    """How often a finding of this confidence is right if words are this `sure` of its cause (None: they say nothing).

    `weights` are the factors of the finder's log odds, of 1, and of the words' log odds.
    """
    own, words = spoken(confidence, sure)
    odds = weights[0] * own + weights[1] + weights[2] * words
    return min(1 / (1 + math.exp(-odds)), _SUREST)


def spoken(confidence: float, sure: float | None) -> tuple[float, float]:
    """The log odds of a finder and of the words, limited to the range that reports showed."""
    words = 0.0 if sure is None else log_odds(max(sure, _LEAST_SPOKEN))
    return log_odds(min(confidence, _SUREST)), words


def log_odds(share: float) -> float:
    """The log odds of a share between 0 and 1; at either end, those of a share close to it."""
    share = min(max(share, _LEAST_SHARE), 1 - _LEAST_SHARE)
    return math.log(share / (1 - share))


def parsed(row: str) -> tuple[float, list[tuple[int, float]]]:
    """A line of the table: the rarity of its feature, and the weight at each place that it speaks for or against."""
    numbers = map(int, row.replace(":", " ").split())
    return next(numbers) / SCALE, [(place, number / SCALE) for place, number in zip(numbers, numbers, strict=True)]


def rarity(name: str) -> float:
    """The rarity of a feature of the table: the logarithm of the number of reports for each one that contains it."""
    return parsed(table().rows[name])[0] if name in table().rows else 0.0


@functools.cache
def table() -> LearnedTable:
    """The project's own table, read on the first call."""
    return load(FOLDER / TABLE)


def load(path: Path) -> LearnedTable:
    """A table as tools/learn_wording.py wrote it; a line is parsed only when a text needs it."""
    return parse(read_own_file(path))


def parse(text: str) -> LearnedTable:
    """The table in the text of its file."""
    head, _, body = text.partition("\n\n")
    manifest = dict(line.split("\t", 1) for line in head.split("\n"))
    causes = tuple(manifest.pop("causes").split())
    bias = tuple(int(number) / SCALE for number in manifest.pop("bias").split())
    slope, shift = (int(number) / SCALE for number in manifest.pop("certainty").split())
    own, other, words = (int(number) / SCALE for number in manifest.pop("shown").split())
    rows = dict(row.split("\t", 1) for row in body.split("\n") if row)
    return LearnedTable(manifest, causes, bias, (slope, shift), (own, other, words), rows)
