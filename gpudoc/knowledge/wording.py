"""What a report's single words say about its cause: weights learned from public reports whose cause is known."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from gpudoc.knowledge.tables import read_list

TABLE = "wording.yaml"
HEALTHY = "healthy"
_TOKEN = re.compile(r"[a-z_][a-z_0-9]{1,24}|[\u4e00-\u9fff]{1,2}")
_READ_CHARACTERS = 20_000
# the table holds whole numbers
SCALE = 100
# fewer words that the table knows say nothing
FEWEST_WORDS = 14


@dataclass(frozen=True, slots=True)
class Likelihood:
    """One cause's share of the likelihood, 0 to 1, and the words that speak for it, those that say most first."""

    cause: str
    share: float
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Word:
    rarity: float
    weights: tuple[tuple[int, float], ...]


def tokens(text: str) -> set[str]:
    """The words of a text as the table knows them; Chinese comes in pairs of characters."""
    return set(_TOKEN.findall(text[:_READ_CHARACTERS].lower()))


def weigh(text: str) -> list[Likelihood]:
    """All causes that the table knows ('healthy' among them), likeliest first; empty when it knows too few words.

    A softmax over the summed weights of the words that are there, each by its rarity, at unit length.
    """
    known = _words()
    present = [(token, known[token]) for token in tokens(text) if token in known]
    if len(present) < FEWEST_WORDS:
        return []
    length = math.sqrt(sum(word.rarity**2 for _, word in present))
    causes = causes_known()
    sums = list(_bias())
    spoke: dict[int, list[tuple[float, str]]] = {}
    for token, word in present:
        for place, weight in word.weights:
            part = weight * word.rarity / length
            sums[place] += part
            if part > 0:
                spoke.setdefault(place, []).append((part, token))
    highest = max(sums)
    powers = [math.exp(one - highest) for one in sums]
    total = sum(powers)
    found = [
        Likelihood(
            causes[place], powers[place] / total, tuple(t for _, t in sorted(spoke.get(place, ()), reverse=True))
        )
        for place in range(len(causes))
    ]
    return sorted(found, key=lambda one: (-one.share, one.cause))


def causes_known() -> tuple[str, ...]:
    """The causes that the table can tell apart."""
    return read_list(TABLE, "causes")


@functools.cache
def _bias() -> tuple[float, ...]:
    return tuple(int(number) / SCALE for number in read_list(TABLE, "bias"))


@functools.cache
def _words() -> Mapping[str, _Word]:
    found = {}
    for row in read_list(TABLE, "words"):
        token, rarity, *weights = row.split()
        pairs = (weight.split(":") for weight in weights)
        weighed = tuple((int(place), int(number) / SCALE) for place, number in pairs)
        found[token] = _Word(int(rarity) / SCALE, weighed)
    return found
