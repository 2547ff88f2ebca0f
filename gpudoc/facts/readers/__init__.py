"""Somebody else's text -> the same facts, with the line each was read from."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpudoc.facts.model import Machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One pass over pasted text: the facts in it, and the cleaned lines that causes look at."""

    machine: Machine = field(default_factory=Machine)
    lines: tuple[str, ...] = ()
    recognised: tuple[str, ...] = ()
