"""Regular expressions that are compiled when they are first used: a live doctor reads hardly any text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator


class Pattern:
    """A regular expression with the methods of `re.Pattern`; what is wrong with it shows at its first use."""

    __slots__ = ("_compiled", "_flags", "source")

    def __init__(self, source: str, flags: int = 0) -> None:
        self.source = source
        self._flags = flags
        self._compiled: re.Pattern[str] | None = None

    @property
    def is_compiled(self) -> bool:
        """Whether it was used already."""
        return self._compiled is not None

    def search(self, text: str) -> re.Match[str] | None:
        """The first match anywhere in `text`."""
        return self._ready().search(text)

    def match(self, text: str) -> re.Match[str] | None:
        """The match at the beginning of `text`."""
        return self._ready().match(text)

    def fullmatch(self, text: str) -> re.Match[str] | None:
        """The match that is all of `text`."""
        return self._ready().fullmatch(text)

    def finditer(self, text: str) -> Iterator[re.Match[str]]:
        """Every match, first to last."""
        return self._ready().finditer(text)

    def sub(self, replacement: str | Callable[[re.Match[str]], str], text: str) -> str:
        """`text` with every match replaced."""
        return self._ready().sub(replacement, text)

    def _ready(self) -> re.Pattern[str]:
        if self._compiled is None:
            self._compiled = re.compile(self.source, self._flags)
        return self._compiled
