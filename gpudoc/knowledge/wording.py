"""What a report's words say about its cause: weights learned from public reports whose cause is known."""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from gpudoc.knowledge.tables import FOLDER

TABLE = "wording.tsv"
# two answers that are no cause: nothing is wrong, and what is wrong is nothing that doctor knows
HEALTHY, OTHER = "healthy", "other"
_TOKEN = re.compile(r"[a-z_][a-z_0-9]{1,24}|[а-яё]{2,24}|[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]+")
_READ_CHARACTERS = 20_000
# Russian words change their ends
_STEM = 6
# the table holds whole numbers
SCALE = 100
# fewer words that the table knows say nothing; reports of 12 to 15 of them it got right as often as it said
FEWEST_WORDS = 12
_LEAST_SHARE = 1e-6
# a pair's two words stand with a blank between them, a fact behind this mark
FACT = "="


@dataclass(frozen=True, slots=True)
class Likelihood:
    """One answer: its share of the likelihood, how often it is right when it is that likely, and the words that spoke.

    Shares sum to 1; `sure` is what reports that were not learned from showed. The words that say most come first.
    """

    cause: str
    share: float
    sure: float
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """The learned table: what it was learned from, its answers with their bias, and a line for each feature.

    A line is the feature's rarity and place:weight for the answers that it speaks for or against.
    """

    manifest: Mapping[str, str]
    causes: tuple[str, ...]
    bias: tuple[float, ...]
    certainty: tuple[float, float]
    rows: Mapping[str, str]


def tokens(text: str) -> list[str]:
    """The words of a text in order, as the table knows them; Chinese, Japanese and Korean as pairs of characters."""
    return [token for found in _TOKEN.findall(text[:_READ_CHARACTERS].lower()) for token in _split(found)]


def _split(found: str) -> Iterator[str]:
    if found[0] < "\u0400":
        yield found
    elif found[0] < "\u3040":
        yield found[:_STEM]
    elif len(found) == 1:
        yield found
    else:
        yield from (found[place : place + 2] for place in range(len(found) - 1))


def features(text: str, facts: Iterable[str] = ()) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """Words, pairs of neighbouring words, and the facts that were read in the text: the three blocks of the table."""
    found = tokens(text)
    pairs = frozenset(f"{one} {other}" for one, other in itertools.pairwise(found))
    return frozenset(found), pairs, frozenset(f"{FACT}{fact}" for fact in facts)


def weigh(text: str, facts: Iterable[str] = ()) -> list[Likelihood]:
    """All answers of the table ('healthy' and 'other' among them), likeliest first; empty when it knows too few words.

    A softmax over the summed weights of the features that are there, each by its rarity; each block at unit length.
    """
    known = table()
    sums = list(known.bias)
    spoke: dict[int, list[tuple[float, str]]] = {}
    for number, block in enumerate(features(text, facts)):
        present = [(name, *parsed(known.rows[name])) for name in sorted(block) if name in known.rows]
        if number == 0 and len(present) < FEWEST_WORDS:
            return []
        length = math.sqrt(sum(rarity**2 for _, rarity, _ in present)) or 1.0
        for name, rarity, weights in present:
            for place, weight in weights:
                part = weight * rarity / length
                sums[place] += part
                if part > 0 and not name.startswith(FACT):
                    spoke.setdefault(place, []).append((part, name))
    highest = max(sums)
    powers = [math.exp(one - highest) for one in sums]
    total = sum(powers)
    found = []
    for place, cause in enumerate(known.causes):
        words = tuple(word for _, word in sorted(spoke.get(place, ()), reverse=True))
        share = powers[place] / total
        found.append(Likelihood(cause, share, sure_of(share, known.certainty), words))
    return sorted(found, key=lambda one: (-one.share, one.cause))


def sure_of(share: float, certainty: tuple[float, float]) -> float:
    """How often an answer with this share is right; `certainty` is the slope and the shift of its log odds."""
    share = min(max(share, _LEAST_SHARE), 1 - _LEAST_SHARE)
    return 1 / (1 + math.exp(-certainty[0] * math.log(share / (1 - share)) - certainty[1]))


def parsed(row: str) -> tuple[float, list[tuple[int, float]]]:
    """A line of the table: the rarity of its feature, and the weight at each place that it speaks for or against."""
    rarity, *weights = row.split()
    pairs = (weight.split(":") for weight in weights)
    return int(rarity) / SCALE, [(int(place), int(number) / SCALE) for place, number in pairs]


@functools.cache
def table() -> Table:
    """The project's own table, read at the first question."""
    return load(FOLDER / TABLE)


def load(path: Path) -> Table:
    """A table as tools/learn_wording.py wrote it; its lines are parsed only as far as a text asks for them."""
    head, _, body = path.read_text("utf-8").partition("\n\n")
    manifest = dict(line.split("\t", 1) for line in head.split("\n"))
    causes = tuple(manifest.pop("causes").split())
    bias = tuple(int(number) / SCALE for number in manifest.pop("bias").split())
    slope, shift = (int(number) / SCALE for number in manifest.pop("certainty").split())
    return Table(manifest, causes, bias, (slope, shift), dict(row.split("\t", 1) for row in body.split("\n") if row))
