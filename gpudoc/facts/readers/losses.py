"""The losses that a training log prints, in order, from loggers of any kind: 'loss: 2.3', {'loss': nan}, columns."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from gpudoc.facts.readers.model import Line
from gpudoc.frozen import dataclass
from gpudoc.patterns import IGNORECASE, Pattern

_NUMBER = r"[-+]?(?:\d+(?:\.\d*)?(?:e[-+]?\d+)?|nan|inf(?:inity)?)"
_LOSS = Pattern(
    r"(?i)loss(?P<end>(?:_\w{1,40})?(?:[/.-]\w{1,40}){0,4})[\"']?\s*(?:(?:[:=]+|\bis\b)\s*)?"
    rf"(?:tensor\(\s*)?(?:[\[(]\s*)?(?P<value>{_NUMBER})(?![\w.])"
)
# darknet's '-nan avg loss', and a loss that was printed as a tensor
_SHORT = r"[-+]?(?:\d{1,12}(?:\.\d{0,12})?(?:e[-+]?\d{1,3})?|nan|inf)"
_UNNAMED = Pattern(
    rf"(?i)(?<![\w.])(?P<before>{_SHORT}),? (?:avg|average|mean)[ _]loss\b|"
    rf"\btensor\(\s?(?P<tensor>{_SHORT})\b[^()\n]{{0,80}}grad_fn=<\w{{0,40}}Loss"
)
_BEGINNING = Pattern(r"[\w./-]{0,40}$")
_OTHER_NAME = Pattern(r"(?i)val|eval|test|dev|best|scale|weight|coef|ratio|target")
_OTHER_BEFORE = Pattern(r"(?i)(?:\bval\w*|\beval\w*|\btest\w*|\bdev|\bbest|\bvalidation)[ _/.-]+(?:set )?$")
_OTHER_LINE = Pattern(r"(?i)^\W{0,6}(?:test|val(?:id(?:ation)?)?|eval(?:uation)?)\b\s?[:\[]")
_STEP = Pattern(r"(?i)\b(?:step|iter(?:ation)?|batch|ep(?:och)?)s?\b\W{0,4}(\d+)|^\W{0,3}(\d+)\b")
_DIGIT = Pattern(r"\d")
_CELL = Pattern(r"[\s|,]+")
_WHOLE = Pattern(_NUMBER, IGNORECASE)
# a step and its value without a name, as 'print(step, loss.item())' writes them; nan only in Python's spelling
_BARE = Pattern(r"[-+]?(?:\d{1,12}(?:\.\d{0,12})?(?:e[-+]?\d{1,3})?|nan|inf)")
_COUNTS = Pattern(r"(?i)(?:step|iter|iteration|epoch|batch|\d{1,9}(?:/\d{1,9})?)")
_MOST_COUNTS, _FEWEST_BARE = 4, 2
# if the first printed step is later than this, it says nothing about the steps before it
_FIRST_STEPS = 5
_LATE_EPOCH, _LATE_STEP = 3, 1000
_MOST_LINES, _LONGEST_NAME = 4_000, 40
# the parts of a detector's loss, as the headings of its table
_PARTS = ("box", "obj", "cls", "dfl")
# the names of a step's whole loss, which come before those of its parts
_NAMES = ("loss", "train_loss", "train/loss", "training_loss", "total_loss")


@dataclass(frozen=True, slots=True)
class LoggedLoss:
    """One printed loss; nan and inf stay as they are."""

    value: float
    line: Line

    @property
    def is_number(self) -> bool:
        """Whether it is finite."""
        return math.isfinite(self.value)

    @property
    def step(self) -> int | None:
        """The step or epoch that its line names; None without one."""
        found = _STEP.search(self.line.text)
        return None if found is None else int(found[1] or found[2])

    @property
    def is_of_first_steps(self) -> bool:
        """Whether its line names one of the first steps, or the first epoch, which may be called 0 or 1."""
        found = _STEP.search(self.line.text)
        if found is None:
            return False
        return int(found[1] or found[2]) <= (1 if found[0].lower().startswith("ep") else _FIRST_STEPS)

    @property
    def is_late(self) -> bool:
        """Whether its line names a step or an epoch by which a model has learned something."""
        found = _STEP.search(self.line.text)
        if found is None:
            return False
        return int(found[1] or found[2]) >= (_LATE_EPOCH if found[0].lower().startswith("ep") else _LATE_STEP)


def read_losses(lines: Sequence[Line]) -> tuple[LoggedLoss, ...]:
    """The training loss of each line that prints one; a loss of validation alone is left out.

    If no line names a loss, the values after a step count as losses if they end in NaN for good.
    """
    series: dict[str, list[LoggedLoss]] = {}
    column: tuple[int, int] | None = None
    for line in lines[-_MOST_LINES:]:
        lowered = line.text.lower()
        if _OTHER_LINE.match(line.text) is not None:
            continue
        if "loss" in lowered or _is_of_parts(lowered):
            printed = list(_printed(line.text)) or list(_unnamed(line.text))
            for name, value in printed:
                series.setdefault(name, []).append(LoggedLoss(value, line))
            column = column if printed else _column_of(line.text)
        elif column is not None and (cell := _cell_of(line.text, column)) is not None:
            series.setdefault("", []).append(LoggedLoss(cell, line))
        elif lowered.strip(" |+-="):
            column = None
    named = next((series[name] for name in _NAMES if name in series), None)
    return _logged(named or max(series.values(), key=len, default=[])) or _bare(lines[-_MOST_LINES:])


def _logged(losses: Sequence[LoggedLoss]) -> tuple[LoggedLoss, ...]:
    """The losses without a headline such as 'Got loss nan' above them: it contains no digit, and numbers follow it."""
    first = next((place for place, loss in enumerate(losses) if loss.is_number), 0)
    return tuple(loss for place, loss in enumerate(losses) if place >= first or _DIGIT.search(loss.line.text))


def _bare(lines: Sequence[Line]) -> tuple[LoggedLoss, ...]:
    """The values of lines that hold nothing but a step and one value; empty if they do not end in NaN."""
    found = [LoggedLoss(value, line) for line in lines if (value := _value_of(line.text)) is not None]
    ill = next((place for place, loss in enumerate(found) if not loss.is_number), len(found))
    # training never recovers from NaN; in a table of figures, numbers can follow it
    ends = len(found) - ill >= _FEWEST_BARE and not any(loss.is_number for loss in found[ill:])
    return tuple(found) if ends else ()


def _value_of(text: str) -> float | None:
    cells = [cell.strip(":;[]()#") for cell in _cells(text)[: _MOST_COUNTS + 2]]
    *counts, value = filter(None, cells) if any(cells) else [""]
    if len(counts) > _MOST_COUNTS or not _BARE.fullmatch(value) or not all(map(_COUNTS.fullmatch, counts)):
        return None
    return float(value)


def _printed(text: str) -> Iterator[tuple[str, float]]:
    """The first value under each name on a line: a value in brackets after it is a mean."""
    seen = set()
    for found in _LOSS.finditer(text):
        before = text[max(0, found.start() - _LONGEST_NAME) : found.start()]
        beginning = _BEGINNING.search(before)
        begin = beginning[0] if beginning else ""
        name = f"{begin}loss{found['end']}".lower().strip("./-")
        if (
            name not in seen
            and not _OTHER_NAME.search(name)
            and not _OTHER_BEFORE.search(before[: len(before) - len(begin)])
        ):
            seen.add(name)
            yield name, float(found["value"])


def _unnamed(text: str) -> Iterator[tuple[str, float]]:
    """The value before the word 'loss', or in a tensor."""
    if (found := _UNNAMED.search(text)) is not None:
        yield "", float(found["before"] or found["tensor"])


def _column_of(header: str) -> tuple[int, int] | None:
    """The index of the loss column in a line of headings, and the number of columns; None without such a column."""
    cells = _cells(header)
    if len(cells) < 2 or any(_WHOLE.fullmatch(cell) for cell in cells):
        return None
    named = (n for n, cell in enumerate(cells) if "loss" in cell.lower() and not _OTHER_NAME.search(cell))
    at = next(named, cells.index(_PARTS[0]) if _is_of_parts(header) else None)
    return None if at is None else (at, len(cells))


def _is_of_parts(header: str) -> bool:
    return _PARTS[0] in header and sum(part in header.split() for part in _PARTS) > 1


def _cell_of(row: str, column: tuple[int, int]) -> float | None:
    cells = _cells(row)
    at, count = column
    # a progress bar may follow the columns
    is_row = len(cells) == count or (len(cells) > count and "%" in cells[count])
    return float(cells[at]) if is_row and _WHOLE.fullmatch(cells[at]) else None


def _cells(text: str) -> list[str]:
    return [cell for cell in _CELL.split(text.strip()) if cell]
