"""Patterns of the signatures made ready for a search: a row's own, and the lists that rows and causes share by name."""

from __future__ import annotations

import functools

from gpudoc.facts.readers.words import Alternative, Words
from gpudoc.knowledge.signature_rows import REGEX, vocabulary
from gpudoc.patterns import Pattern

_SPECIAL = Pattern(r"[.^$*+?{}\[\]\\|()]")


@functools.cache
def as_words(patterns: tuple[str, ...]) -> Words:
    """Patterns of a row as one search: what a program prints literally, or a regular expression after `re:`."""
    return Words(*(p.removeprefix(REGEX) if p.startswith(REGEX) else _SPECIAL.sub(r"\\\g<0>", p) for p in patterns))


class Listed(Words):
    """A list of vocabulary.yaml by its name; the file is read at the first search."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    @property
    def patterns(self) -> tuple[str, ...]:
        """The patterns of the list."""
        return vocabulary(self._name)

    @property
    def _alternatives(self) -> tuple[Alternative, ...]:
        if self._known is None:
            self._known = as_words(self.patterns)._alternatives
        return self._known
