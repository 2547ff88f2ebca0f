"""Progress as an observer: long actions report, whether or not anybody listens."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """What a long action reports while it runs; every call returns at once."""

    def say(self, text: str) -> None:
        """One line: what is being tried and why; one that begins with '! ' must be seen."""

    def advance(self, done: float, total: float, text: str) -> None:
        """How far the action is, in seconds (floats) or in things (ints), and what it does right now."""


class Silent:
    """Listens to nothing; the default of every long action."""

    def say(self, text: str) -> None:
        """Drop the line."""

    def advance(self, done: float, total: float, text: str) -> None:
        """Drop the step."""


SILENT = Silent()
