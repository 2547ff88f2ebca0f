"""Another person's text -> the same facts, with the source line of each fact."""

from __future__ import annotations

from gpudoc.facts.readers.intake import read, read_machine
from gpudoc.facts.readers.model import CleanText, Line, Mention, Reading

__all__ = ["CleanText", "Line", "Mention", "Reading", "read", "read_machine"]
