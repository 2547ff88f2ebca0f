"""Somebody else's text -> the same facts, with the line each was read from."""

from __future__ import annotations

from gpudoc.facts.readers.intake import read, read_machine
from gpudoc.facts.readers.model import Line, Mention, Reading, Text

__all__ = ["Line", "Mention", "Reading", "Text", "read", "read_machine"]
