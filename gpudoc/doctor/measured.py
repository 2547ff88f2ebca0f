"""How large the share of the time is that a profile states in a line, or a log over all of its steps."""

from __future__ import annotations

from collections.abc import Sequence

from gpudoc.doctor.causes.sign import quote
from gpudoc.doctor.model import Observation, observe
from gpudoc.facts.readers.model import Mention, Text
from gpudoc.facts.readers.words import Words
from gpudoc.units import format_count

_MOST_LINES = 400
# all of a step, and what rounding adds; a larger number is no share of one
_ALL = 105.0


def measured(text: Text, lines: Words, least: float, fact: str) -> tuple[Mention, Observation] | None:
    """The line that states a share of at least so many percent, and what to quote; None where none is that large.

    A line has the share itself in a group `share`. Or it has a step's times: a group `part`, and one or several groups
    that begin with `whole`, which are summed over the steps.
    """
    found = list(text.find_all(lines, most=_MOST_LINES))
    if not found:
        return None
    if "share" in found[0].match.groupdict():
        largest = max((line for line in found if float(line["share"]) <= _ALL), key=_share, default=None)
        return None if largest is None or _share(largest) < least else (largest, quote(largest, fact))
    # the first step starts the workers: it says nothing about the rest
    steps = found[1:] if len(found) > 2 else found
    whole = _sum(steps, "whole")
    share = 100 * _sum(steps, "part") / whole if whole else 0.0
    value = f"{share:.0f} % of the time in {format_count(len(steps), 'logged step')}"
    return (steps[-1], observe(fact, value, steps[-1].line.origin)) if least <= share <= _ALL else None


def _share(line: Mention) -> float:
    return float(line["share"])


def _sum(steps: Sequence[Mention], group: str) -> float:
    times = (step.match.groupdict() for step in steps)
    return sum(float(time or 0) for each in times for name, time in each.items() if name.startswith(group))
