"""A running job watched from outside: stacks, processes and device counters over some seconds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """What was seen of one job while it ran."""

    pid: int
    seconds: float
