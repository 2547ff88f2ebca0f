"""Patterns that are cheap to rule out: each alternative is searched for only where a word that it must hold occurs."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass

_FLAGS = re.IGNORECASE | re.DOTALL | re.MULTILINE
_SHORTEST = 3
_OPTIONAL = ("?", "*", "{0")


@dataclass(frozen=True, slots=True)
class Alternative:
    """One way to say it: the pattern's source, and words of which one must occur (none: always searched)."""

    source: str
    anchors: tuple[str, ...]


class Words:
    """Several ways to say one thing, blind to case; a blank stands for any white space, so wrapped lines match too."""

    __slots__ = ("_given", "_known")

    def __init__(self, *alternatives: str) -> None:
        self._given = alternatives
        self._known: tuple[Alternative, ...] | None = None

    @property
    def _alternatives(self) -> tuple[Alternative, ...]:
        # taken apart when a text is first searched: at import there are hundreds of them and no text
        if self._known is None:
            self._known = tuple(Alternative(*way) for given in self._given for way in ways_of(given))
        return self._known

    @property
    def anchors(self) -> tuple[str, ...]:
        """Words of which one stands in every text that matches; empty when that can be told of none."""
        found: dict[str, None] = {}
        for alternative in self._alternatives:
            if not alternative.anchors:
                return ()
            found |= dict.fromkeys(alternative.anchors)
        return tuple(found)

    def search(self, flat: str, lowered: str) -> re.Match[str] | None:
        """The leftmost match of any alternative in `flat`, whose lower-case form is `lowered`."""
        found: re.Match[str] | None = None
        for alternative in self._alternatives:
            if alternative.anchors and not any(anchor in lowered for anchor in alternative.anchors):
                continue
            match = _compile(alternative.source).search(flat)
            if match is not None and (found is None or match.start() < found.start()):
                found = match
        return found

    def finditer(self, flat: str, lowered: str) -> Iterator[re.Match[str]]:
        """Every match, alternative by alternative, ordered by where it begins."""
        matches: list[re.Match[str]] = []
        for alternative in self._alternatives:
            if not alternative.anchors or any(anchor in lowered for anchor in alternative.anchors):
                matches += _compile(alternative.source).finditer(flat)
        return iter(sorted(matches, key=lambda m: m.start()))


# few of the many patterns are ever needed in one run: each is compiled when its words first occur
@functools.cache
def _compile(source: str) -> re.Pattern[str]:
    # " +" means no more than a blank does, and Python 3.10 refuses the two signs that would come of it
    plain = source.replace(" +", " ").replace(" ?", r"\s*").replace(" *", r"\s*")
    return re.compile(plain.replace(" ", r"\s+"), _FLAGS)


def ways_of(source: str) -> list[tuple[str, tuple[str, ...]]]:
    """The parts of `source` between the bars outside any group, each with its anchors: lower-case words of which every
    match holds at least one; empty when none can be told.
    """
    tokens = [(match.lastgroup or "", match[0], match.start()) for match in _TOKEN.finditer(source)]
    _, anchors, bars = _read_ways(tokens, 0)
    ends = [*bars, len(source)]
    starts = [0, *(bar + 1 for bar in bars)]
    return [(source[start:end], way) for start, end, way in zip(starts, ends, anchors, strict=True)]


# plain characters come as a run; a sign of repetition behind it belongs to its last one
_TOKEN = re.compile(
    r"(?P<plain>[^\\\[().^$*+?{|]+)|(?P<escaped>\\.)|(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])|"
    r"(?P<ahead>\(\?<?[=!])|(?P<open>\((?:\?:|\?P<\w+>)?)|(?P<close>\))|(?P<bar>\|)|"
    r"(?P<repeat>(?:[*+?]|\{\d*,?\d*\})\??)|(?P<other>.)",
    re.DOTALL,
)
_END = ("", "", 0)


def _read_ways(tokens: list[tuple[str, str, int]], place: int) -> tuple[int, list[tuple[str, ...]], list[int]]:
    """From `place` to the end of the group: the place behind it, the anchors of each way, and where its bars stand."""
    ways: list[tuple[str, ...]] = []
    bars: list[int] = []
    best: tuple[str, ...] = ()
    run = ""
    while place < len(tokens):
        kind, text, start = tokens[place]
        place += 1
        choices: tuple[str, ...] = ()
        if kind in ("open", "ahead"):
            place, inner, _ = _read_ways(tokens, place)
            # what stands ahead or behind is no part of the match
            choices = _choices(inner) if kind == "open" else ()
        elif kind == "bar":
            ways.append(_better(best, (run,)))
            bars.append(start)
            best, run = (), ""
            continue
        elif kind == "close":
            break
        then, sign, _ = tokens[place] if place < len(tokens) else _END
        repeated = then == "repeat"
        place += repeated
        plain = text.lower() if kind == "plain" else text[1:] if kind == "escaped" and not text[1:].isalnum() else ""
        run += plain[:-1] if repeated else plain
        if repeated or not plain:
            best, run = _better(best, (run,)), ""
            if choices and not sign.startswith(_OPTIONAL):
                best = _better(best, choices)
    return place, [*ways, _better(best, (run,))], bars


def _choices(ways: list[tuple[str, ...]]) -> tuple[str, ...]:
    """The anchors of all ways together; none when one of them has none."""
    return tuple(word for way in ways for word in way) if all(ways) else ()


def _better(best: tuple[str, ...], words: tuple[str, ...]) -> tuple[str, ...]:
    # long words are rare; each further choice makes a hit likelier
    if not all(len(word) >= _SHORTEST for word in words):
        return best
    return words if not best or _weight(words) > _weight(best) else best


def _weight(words: tuple[str, ...]) -> float:
    return min(map(len, words)) - 0.5 * len(words)
