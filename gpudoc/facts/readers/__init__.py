"""Somebody else's text -> the same facts, with the line each was read from."""

from __future__ import annotations

from gpudoc.facts.readers.intake import read, read_machine
from gpudoc.facts.readers.model import CleanText, Line, Mention, Reading

__all__ = ["CleanText", "Line", "Mention", "Reading", "read", "read_machine"]
