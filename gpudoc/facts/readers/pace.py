"""The time of each epoch or step, in order: as a log prints it, or as a person states it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from gpudoc.facts.readers.model import Line
from gpudoc.frozen import dataclass
from gpudoc.patterns import Pattern

_MOST_LINES, _FEW_LINES = 4_000, 60
# a finished progress bar of tqdm, and of Keras
_BAR = Pattern(r"(?<!\d)(?P<of>\d{1,9})/(?P=of) ?\[(?P<clock>\d{1,3}(?::\d\d){1,2})<00:00")
_KERAS = Pattern(r"^(?P<of>\d{1,9})/(?P=of) \[=+\] - (?P<seconds>\d{1,7})s")
_MINUTE, _HOUR = 60.0, 3600.0
# by the first letter of a unit
_UNITS = {"s": 1.0, "m": _MINUTE, "h": _HOUR, "秒": 1.0, "分": _MINUTE, "小": _HOUR, "с": 1.0, "м": _MINUTE, "ч": _HOUR}
_UNIT = r"ms|s(?:ec(?:ond)?s?)?|m(?:in(?:ute)?s?)?|h(?:(?:ou)?rs?)?"
_NUMBERED = Pattern(
    r"(?i)^\W{0,4}(?:train\w* )?(?:epoch|iter(?:ation)?|step)s?\b\W{0,4}\d+[^\n]{0,160}?"
    rf"\b(?:time(?:\(s\))?|took|in|at)\b[^\n\d]{{0,12}}(?P<seconds>\d{{1,7}}(?:\.\d{{1,6}})?) ?(?P<unit>{_UNIT})\b"
)
_LABELLED = Pattern(
    r"(?i)^\W{0,4}time (?:this|per|of|for) (?:\w{1,12} )?(?:epoch|iteration|step)\W{1,4}(?P<seconds>\d{1,7}\.\d{1,6})"
)
# a step's time by its label without a unit, the seconds at the end of an epoch's line, and a rate of samples
_UNITLESS = Pattern(
    r"(?i)\b(?:epoch|iter(?:ation)?|itr|step|batch)s?\b\W{0,4}\d+[^\n]{0,200}?\b(?!data|eta|load)[a-z_]{0,10}time(?:\(s\))?"
    r"\W{1,3}(?P<seconds>\d{1,6}\.\d{1,6})\b(?! ?(?:ms|m|h)\b)"
)
_AT_END = Pattern(r"(?i)\bepoch\b[^\n]{0,160}?(?P<seconds>\d{1,6}(?:\.\d{1,6})?) ?s(?:ec\w{0,4}|ceonds)?\W{0,3}$")
_SAMPLES = Pattern(
    r"(?i)\b(?:epoch|batch|step|iter)\b[^\n]{0,80}?\bspeed\W{1,3}(?P<seconds>\d{1,6}(?:\.\d{1,6})?) ?"
    r"(?P<rate>(?:sample|image|item)s?/s)"
)
_STATED = Pattern(
    rf"(?i)(?<![\w.:])(?:(?P<clock>\d{{1,2}}:\d\d) ?min|(?P<seconds>\d{{1,5}}(?:\.\d{{1,3}})?) ?"
    rf"(?:(?P<unit>{_UNIT}|秒|分钟?|小时|сек\w*|мин\w*|час\w*)(?![a-z/])|(?P<rate>(?:it|iters?|steps?|batch(?:es)?)/s)))"
)
_OF_WHAT = Pattern(r"(?i)\b(?:epochs?|iterations?|iters?|steps?|batch(?:es)?|each|it/s)\b|轮|эпох|итерац|шаг")
_BEFORE = Pattern(
    r"(?i)\b(?:at (?:the )?(?:(?:very )?first|beginning|start)|(?:in )?the beginning|initially|"
    r"(?:the |my |in )?first (?:time|epoch|one)|starts? (?:with|at)|used to)\b|"
    r"一开始|最初|刚开始|第一|сначала|вначале|перв"
)
_LATER = Pattern(
    r"(?i)\b(?:now|then|later|afterwards|by the|subsequent\w*|second|third|until|after|behind|in the end|end)\b|"
    r"现在|后来|之后|然后|第二|потом|теперь|затем|втор"
)
_RATE = Pattern(
    r"(?i)\b(?:epoch|batch|step|iter(?:ation)?)s?\b\W{0,4}\d+[^\n]{0,160}?(?<![\w.])"
    r"(?P<seconds>\d{1,7}(?:\.\d{1,4})?) ?(?P<rate>(?:it|iter|step|batche|sample|img|image|token|tok)s?/s(?:ec)?)\b"
)
_LOGGED = (_NUMBERED, _LABELLED, _UNITLESS, _AT_END, _SAMPLES, _RATE)
# the most characters of a statement about a change, and between a time and the words about it
_TOGETHER, _NEAR = 400, 60
_FEWEST = 3
# the factors by which the times must grow or fall
_GREW, _FELL = 1.4, 1.5
# the factor by which a single time must exceed the usual one
_JUMPED = 5.0
# times that only add up differ by about the first of them
_ADDS_UP = 0.15


@dataclass(frozen=True, slots=True)
class Timed:
    """The time of one epoch or step in seconds, and the line that states it."""

    seconds: float
    line: Line


@dataclass(frozen=True, slots=True)
class Pace:
    """Several times in order, of which the first and the last are compared."""

    times: tuple[Timed, ...]

    @property
    def grew(self) -> bool:
        """Whether the later ones take clearly longer."""
        return self.change >= _GREW

    @property
    def fell(self) -> bool:
        """Whether the first ones took clearly longer."""
        return self.change <= 1 / _FELL

    @property
    def change(self) -> float:
        """The last times divided by the first ones."""
        first, last = self._ends()
        return last / max(first, 1e-9)

    @property
    def jumped(self) -> bool:
        """Whether a time after the first is several times the usual one."""
        values = [one.seconds for one in self.times]
        from statistics import median

        return len(values) > _FEWEST and max(values[1:]) >= _JUMPED * median(values)

    def _ends(self) -> tuple[float, float]:
        part = max(1, len(self.times) // 3)
        values = [one.seconds for one in self.times]
        from statistics import median

        return median(values[:part]), median(values[-part:])


def read_pace(lines: Sequence[Line]) -> Pace | None:
    """The times in a log, else the earlier and later times that a person states; None if there are too few."""
    logged = _logged(lines[-_MOST_LINES:])
    if len(logged) > 1:
        return None if _adds_up(logged) else Pace(tuple(logged))
    stated = _stated(lines) if len(lines) <= _FEW_LINES else []
    return Pace(tuple(stated)) if stated else None


def _logged(lines: Sequence[Line]) -> list[Timed]:
    bars: dict[str, list[Timed]] = {}
    numbered: list[Timed] = []
    for line in lines:
        bar = _BAR.search(line.text) if "<00:00" in line.text else _KERAS.search(line.text)
        if bar is not None:
            bars.setdefault(bar["of"], []).append(Timed(_in_seconds(bar.groupdict()), line))
        elif (found := next(filter(None, (one.search(line.text) for one in _LOGGED)), None)) is not None:
            numbered.append(Timed(_in_seconds(found.groupdict()), line))
    # the bars of training have more steps than those of validation
    longest = bars[max(bars, key=int)] if bars else []
    series = longest if len(longest) > 1 else numbered if len(numbered) >= _FEWEST else []
    return [one for one in series if one.seconds > 0]


def _adds_up(times: Sequence[Timed]) -> bool:
    """Whether each time counts from the beginning."""
    values = [one.seconds for one in times]
    steps = [later - one for one, later in itertools.pairwise(values)]
    return len(steps) > 1 and all(abs(step - values[0]) <= _ADDS_UP * values[0] for step in steps)


def _stated(lines: Sequence[Line]) -> list[Timed]:
    """The earlier and later times that a person states, in the order of the text."""
    for line in lines:
        found = [one for one in _STATED.finditer(line.text) if _is_of_work(line.text, *one.span())]
        if len(found) < 2:
            continue
        (start, middle), end = found[0].span(), found[-1].end()
        before, later = line.text[max(0, start - _NEAR) : end], line.text[middle : end + _NEAR]
        if end - start <= _TOGETHER and _BEFORE.search(before) and _LATER.search(later):
            return [Timed(_in_seconds(one.groupdict()), line) for one in found]
    return []


def _is_of_work(text: str, start: int, end: int) -> bool:
    return _OF_WHAT.search(text[max(0, start - _NEAR) : end + _NEAR]) is not None


def _in_seconds(parts: dict[str, str | None]) -> float:
    if (clock := parts.get("clock")) is not None:
        total = 0
        for part in clock.split(":"):
            total = 60 * total + int(part)
        return float(total)
    number = float(parts["seconds"] or 0)
    if parts.get("rate"):
        return 1 / number if number else 0.0
    unit = (parts.get("unit") or "s").lower()
    return number * (1e-3 if unit == "ms" else _UNITS[unit[0]])
