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
class _Alternative:
    """One way to say it: the pattern's source, and words of which one must occur (none: always searched)."""

    source: str
    anchors: tuple[str, ...]


class Words:
    """Several ways to say one thing, blind to case; a blank stands for any white space, so wrapped lines match too."""

    __slots__ = ("_given", "_known")

    def __init__(self, *alternatives: str) -> None:
        self._given = alternatives
        self._known: tuple[_Alternative, ...] | None = None

    @property
    def _alternatives(self) -> tuple[_Alternative, ...]:
        # taken apart when a text is first searched: at import there are hundreds of them and no text
        if self._known is None:
            parts = (part for given in self._given for part in _branches(given))
            self._known = tuple(_Alternative(part, anchors_of(part)) for part in parts)
        return self._known

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
    return re.compile(source.replace(" ?", r"\s*").replace(" ", r"\s+"), _FLAGS)


def anchors_of(source: str) -> tuple[str, ...]:
    """Lower-case words of which every match of `source` holds at least one; empty when none can be told."""
    best: tuple[str, ...] = ()
    for words in _mandatory(source):
        if all(len(w) >= _SHORTEST for w in words) and _weight(words) > _weight(best):
            best = words
    return best


def _weight(words: tuple[str, ...]) -> float:
    # long words are rare; each further choice makes a hit likelier
    return min(map(len, words)) - 0.5 * len(words) if words else 0.0


def _branches(source: str) -> list[str]:
    """The parts between the bars outside any group."""
    parts, depth, start = [], 0, 0
    for place, char in _outside_escapes(source):
        if char == "(":
            depth += 1
        elif char == ")":
            depth -= 1
        elif char == "|" and depth == 0:
            parts.append(source[start:place])
            start = place + 1
    return [*parts, source[start:]]


def _outside_escapes(source: str) -> Iterator[tuple[int, str]]:
    """The characters that are neither escaped nor in a character class, with their places."""
    place, in_class = 0, False
    while place < len(source):
        char = source[place]
        if char == "\\":
            place += 2
            continue
        if char == "[" and not in_class:
            in_class = True
        elif char == "]" and in_class:
            in_class = False
        elif not in_class:
            yield place, char
        place += 1


def _mandatory(source: str) -> Iterator[tuple[str, ...]]:
    """The runs of plain characters, and the choices of groups, that every match must go through."""
    place, run = 0, ""
    while place < len(source):
        width, plain, choices = _element(source, place)
        after = source[place + width : place + width + 2]
        optional = after.startswith(_OPTIONAL)
        quantified = optional or after[:1] in ("+", "{")
        if plain and not quantified:
            run += plain
        else:
            yield (run,)
            run = ""
            if not optional and choices:
                yield choices
        place += width + (len(_quantifier(source[place + width :])) if quantified else 0)
    yield (run,)


def _quantifier(rest: str) -> str:
    match = re.match(r"(?:[?*+]|\{\d*,?\d*\})\??", rest)
    return match[0] if match else ""


def _element(source: str, place: int) -> tuple[int, str, tuple[str, ...]]:
    """The next element: its width, the plain text it stands for, or the words of which a group holds one."""
    char = source[place]
    if char == "\\":
        escaped = source[place + 1 : place + 2]
        plain = escaped.lower() if escaped and not escaped.isalnum() else ""
        return 2, plain, ()
    if char == "[":
        end = place + 1
        while end < len(source) and (source[end] != "]" or end == place + 1):
            end += 2 if source[end] == "\\" else 1
        return end - place + 1, "", ()
    if char == "(":
        return _group(source, place)
    return 1, "" if char in ".^$*+?{}|)" else char.lower(), ()


def _group(source: str, place: int) -> tuple[int, str, tuple[str, ...]]:
    depth, end = 0, len(source)
    for offset, char in _outside_escapes(source[place:]):
        depth += (char == "(") - (char == ")")
        if depth == 0:
            end = place + offset
            break
    inner = source[place + 1 : end]
    if inner.startswith("?"):
        if not inner.startswith(("?:", "?P<")):
            return end - place + 1, "", ()
        inner = inner[2:] if inner.startswith("?:") else inner[inner.index(">") + 1 :]
    choices: list[str] = []
    for branch in _branches(inner):
        anchors = anchors_of(branch)
        if not anchors:
            return end - place + 1, "", ()
        choices += anchors
    return end - place + 1, "", tuple(choices)
