"""Losses that become NaN or grow without end, judged by the figures printed before and by the precision."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from gpudoc.doctor.causes.sign import Listed, quote, text_finder
from gpudoc.doctor.complaint import is_denied
from gpudoc.doctor.model import Evidence, Finding, Observation, Skip, observe
from gpudoc.facts.model import Absent
from gpudoc.facts.readers.losses import LoggedLoss, read_losses
from gpudoc.facts.readers.model import CleanText
from gpudoc.facts.readers.precision import FLOAT16

_NAN_IN_DATA = Listed("nan-in-data")
_MOST_SHOWN = 6
# a loss has grown at 3 times its lowest value; without a NaN after it, it takes 50 times, more than 10, and 4 rises
_GREW, _EXPLODED, _LARGE, _RISES = 3.0, 50.0, 10.0, 4
# a loss that was in order some steps before is never above the first, and no loss is ever above the second
_HUGE, _ENORMOUS = 1e5, 1e12
# a loss that moves by less than 0.02 is flat, one that is printed unchanged stands still; for the classes in _CLASSES
# the loss of guessing shows their number
_FEWEST_FLAT, _FLAT, _FEWEST_SAME = 5, 0.02, 4
# with fewer digits, an unchanged loss may move unseen
_EXACT = 4
_CLASSES = (*range(2, 21), 100, 200, 1000)


def _find_nan(text: CleanText, evidence: Evidence) -> Iterator[Finding | Skip]:
    """The cause of the first loss that is not a number, by the losses before it."""
    if "loss" not in text.lowered and "nan" not in text.lowered:
        return
    losses = read_losses(text.lines)
    ill = next((place for place, loss in enumerate(losses) if not loss.is_number), None)
    if ill is None:
        yield from _exploded(losses)
        yield from _at_chance(losses)
        return
    before = [loss.value for loss in losses[:ill]]
    seen = [_shown(losses, ill), *_precision(evidence)]
    in_data = next((one for one in text.find_all(_NAN_IN_DATA) if not is_denied(text, one)), None)
    half = evidence.machine.torch.precision == FLOAT16
    if in_data is not None:
        yield _finding("loss_nan_in_data", 0.85, [quote(in_data, "data"), *seen])
    elif _grew(before):
        yield _finding("loss_diverged", 0.7 if half else 0.9, seen, _growth(before, losses[ill].value))
    elif half:
        yield _finding("fp16_overflow_nan", 0.8, seen)
    elif len(before) > 1 or (before and losses[0].is_late and losses[ill].is_late):
        title = f"The loss becomes {losses[ill].value} from one log line to the next"
        yield _finding("loss_nan_sudden", 0.8, seen, title)
    elif not before and losses[0].is_of_first_steps:
        yield _finding("loss_nan_from_start", 0.8, seen)
    else:
        yield _finding("loss_nan", 0.75, seen)


def _finding(cause: str, confidence: float, seen: Sequence[Observation], title: str = "") -> Finding:
    return Finding(id=cause, confidence=confidence, evidence=tuple(seen), title=title)


def _exploded(losses: Sequence[LoggedLoss]) -> Iterator[Finding]:
    """A loss that rises and rises, although it is still a number."""
    values = [loss.value for loss in losses]
    tail = values[-_RISES - 1 :]
    rises = len(tail) > _RISES and all(one < other for one, other in itertools.pairwise(tail))
    if not tail or tail[-1] < max(values):
        return
    growth = tail[-1] / max(abs(min(values, key=abs)), 1e-9)
    is_large = tail[-1] > _ENORMOUS or (tail[-1] > _HUGE and growth > _HUGE / _LARGE)
    if is_large or (rises and tail[-1] > _LARGE and growth > _EXPLODED):
        yield _finding("loss_diverged", 0.8, [_shown(losses, len(losses) - 1)], _growth(values, None))


def _at_chance(losses: Sequence[LoggedLoss]) -> Iterator[Finding]:
    """A loss that is printed unchanged again and again, or stays at the value of guessing, long after the start."""
    values = [loss.value for loss in losses]
    if len(values) < _FEWEST_SAME or not losses[-1].is_late or max(values) - min(values) > _FLAT:
        return
    if len(set(values)) == 1 and len(f"{values[0]:g}".replace(".", "").lstrip("0")) >= _EXACT:
        title = f"The loss does not change: {values[0]:g} in each of {len(values)} log lines"
        yield _finding("model_not_learning", 0.75, [_shown(losses, len(losses) - 1)], title)
        return
    if len(values) < _FEWEST_FLAT:
        return
    usual = sorted(values)[len(values) // 2]
    classes = next((n for n in _CLASSES if abs(usual - math.log(n)) < _FLAT / 2), None)
    if classes is not None:
        title = f"The loss stays at {usual:.3g}, the value of guessing among {classes} classes"
        yield _finding("model_not_learning", 0.75, [_shown(losses, len(losses) - 1)], title)


def _grew(before: Sequence[float]) -> bool:
    """Whether the last loss is by far the largest, and not one of many that go up and down."""
    if len(before) < 2 or before[-1] < max(before):
        return False
    from statistics import median

    usual = median(abs(value) for value in before[:-1])
    lowest = min(abs(value) for value in before)
    return before[-1] >= _GREW * lowest and before[-1] >= min(_GREW * usual, _EXPLODED * lowest)


def _growth(values: Sequence[float], end: float | None) -> str:
    lowest = min(values, key=abs)
    behind = "" if end is None else f" and became {end}"
    return f"The loss diverged: {lowest:g} grew to {values[-1]:g}{behind}"


def _shown(losses: Sequence[LoggedLoss], end: int) -> Observation:
    """The last losses up to `end`, as they were printed."""
    part = losses[max(0, end - _MOST_SHOWN + 1) : end + 1]
    first, last = part[0].line, part[-1].line
    origin = first.origin if first == last else f"{first.origin} to {last.number}"
    return observe("loss", ", ".join(f"{loss.value:g}" for loss in part), origin)


def _precision(evidence: Evidence) -> Iterator[Observation]:
    said = evidence.machine.torch.precision
    if not isinstance(said, Absent):
        origins = evidence.reading.origins if evidence.reading is not None else {}
        yield Observation("precision", f"training in {said}", origins.get("torch.precision", ""))


FINDERS = (text_finder("loss_nan", _find_nan),)
