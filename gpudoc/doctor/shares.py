"""The share of the time that a profile states in a line, or a log over all of its steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpudoc.doctor.causes.sign import quote
from gpudoc.doctor.model import Observation, observe
from gpudoc.facts.readers.model import CleanText, Mention
from gpudoc.facts.readers.words import Words
from gpudoc.patterns import IGNORECASE, Pattern
from gpudoc.units import format_count

_MOST_LINES = 400
_TIME = Pattern(r"(\d+(?:\.\d+)?)\s*([a-zµ]+(?:/s)?)?", IGNORECASE)
_SECONDS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "secs": 1.0, "second": 1.0, "seconds": 1.0}
# a whole step in percent, plus rounding; a larger number is not a share of one step
_ALL = 105.0
# a part above this percentage is in milliseconds while its step is in seconds
_OTHER_UNIT = 5_000.0


@dataclass(frozen=True, slots=True)
class Measured:
    """A share of the time in percent, the line that states it, and the observation to quote.

    `is_apart`: the part is longer than its step, for example if it overlaps with it; it may or may not delay the step.
    """

    percent: float
    line: Mention
    seen: Observation
    is_apart: bool = False


def measured(text: CleanText, lines: Words, fact: str) -> Measured | None:
    """The largest share of the time that these lines state; None if they state none.

    A line has the share itself in a group `share`. Or it has a step's times: a group `part`, and one or several groups
    that begin with `whole`, which are summed over the steps, or `rest`, the step without that part. A time has the unit
    after it, or that of its neighbours.
    """
    found = list(text.find_all(lines, most=_MOST_LINES))
    if not found:
        return None
    if "share" in found[0].match.groupdict():
        largest = max((line for line in found if float(line["share"]) <= _ALL), key=_share, default=None)
        return None if largest is None else Measured(_share(largest), largest, quote(largest, fact))
    # the first step starts the workers, so it says nothing about the others
    steps = found[1:] if len(found) > 2 else found
    part = _sum(steps, "part")
    rest = _sum(steps, "rest")
    whole = part + rest if rest else _sum(steps, "whole")
    percent, count = 100 * part / whole if whole else 0.0, format_count(len(steps), "logged step")
    if percent > _OTHER_UNIT and not any(_has_unit(step) for step in steps):
        # milliseconds are next to seconds
        part, percent = part / 1000, percent / 1000
    value, is_apart = f"{percent:.0f} % of the time in {count}", percent > _ALL
    if is_apart:
        percent = 100 * part / (part + whole)
        value = f"{part / len(steps):.3g} s next to steps of {whole / len(steps):.3g} s in {count}"
    seen = observe(fact, value, steps[-1].line.origin)
    return Measured(percent, steps[-1], seen, is_apart) if whole else None


def _has_unit(step: Mention) -> bool:
    return any(time[2] for said in step.match.groups() if (time := _TIME.match(said or "")) is not None)


def _share(line: Mention) -> float:
    return float(line["share"])


def _sum(steps: Sequence[Mention], group: str) -> float:
    """The seconds of all steps in the groups whose names begin with `group`."""
    return sum(time for step in steps for name, time in _times(step) if name.startswith(group))


def _times(step: Mention) -> Iterator[tuple[str, float]]:
    """The value of each group of a step's line, in seconds if a unit is printed; a rate becomes the time of one."""
    read = {name: _TIME.match(said or "0") for name, said in step.match.groupdict().items()}
    known = {name: (float(time[1]), (time[2] or "").lower()) for name, time in read.items() if time is not None}
    usual = next((unit for _, unit in known.values() if unit in _SECONDS), "")
    for name, (number, unit) in known.items():
        if unit.endswith("/s"):
            yield name, 1 / number if number else 0.0
        else:
            yield name, number * _SECONDS.get(unit or usual, 1.0)
