"""The gain of a search: the chosen settings against the default, both with real data, with its uncertainty; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpudoc.stats import median
from gpudoc.tune.model.scaling import SpeedSpan
from gpudoc.tune.model.speed import speed_interval
from gpudoc.tune.trial.messages import Trial


@dataclass(frozen=True, slots=True)
class Gain:
    """Samples per second of all ranks with real data, and the choice's speed over the default's; None: not measured.

    With `kept_default` the tried settings lost and the default was chosen: `ratio` is that of the losing settings.
    """

    default: SpeedSpan | None
    chosen: SpeedSpan | None
    ratio: SpeedSpan | None
    kept_default: bool = False

    @property
    def of_choice(self) -> SpeedSpan | None:
        """The speed of the chosen settings over the default's: 1 if the default was chosen."""
        return SpeedSpan(1.0, 1.0, 1.0) if self.kept_default else self.ratio

    @property
    def is_sure(self) -> bool:
        """Whether the choice is faster over its whole interval."""
        return not self.kept_default and self.ratio is not None and self.ratio.low > 1

    @property
    def is_once(self) -> bool:
        """Whether both were measured only once, so that the difference between two measurements is unknown."""
        return self.ratio is not None and self.ratio.low == self.ratio.high

    def document(self) -> dict[str, object]:
        """The gain as plain data: each as [middle, low, high], null if it was not measured."""
        spans = {"default": self.default, "chosen": self.chosen, "ratio": self.ratio}
        plain: dict[str, object] = {
            name: None if span is None else [round(x, 4) for x in (span.middle, span.low, span.high)]
            for name, span in spans.items()
        }
        return {**plain, "kept_default": self.kept_default}


def times(ratio: SpeedSpan) -> str:
    """'1.82 times (1.79 to 1.86)'; without bounds if each was measured once."""
    if ratio.low == ratio.high:
        return f"about {ratio.middle:.2f} times (each measured once)"
    return f"{ratio.middle:.2f} times ({ratio.low:.2f} to {ratio.high:.2f})"


def gain_between(before: SpeedSpan | None, after: SpeedSpan | None, *, kept_default: bool) -> Gain:
    """The gain of one speed over another, with the uncertainty of both."""
    ratio = None
    if before is not None and after is not None:
        ratio = SpeedSpan(after.middle / before.middle, after.low / before.high, after.high / before.low)
    return Gain(before, before if kept_default else after, ratio, kept_default)


def gain_of(defaults: Sequence[Trial], joints: Sequence[Trial], *, kept_default: bool) -> Gain:
    """The gain from the trials of both with real data; launches of a command use their own spread."""
    speed = speed_of_launches if any(trial.how == "launch" for trial in defaults) else speed_with_data
    return gain_between(speed(defaults), speed(joints), kept_default=kept_default)


def speed_of_launches(trials: Sequence[Trial]) -> SpeedSpan | None:
    """The speed of launches of the same settings, with the slowest and the fastest of them; None without any.

    In samples per second, or in steps per second if samples are unknown.
    """
    known = [speed for trial in trials if trial.fits and (speed := trial.samples_per_s or trial.steps_per_s)]
    return SpeedSpan(median(known), min(known), max(known)) if known else None


def speed_with_data(trials: Sequence[Trial]) -> SpeedSpan | None:
    """Samples per second over all ranks; the interval spans the trials and each trial's interval of the median."""
    spans = []
    for trial in trials:
        point = trial.points[-1] if trial.fits and trial.points else None
        if point is None or not point.samples_per_s or not point.step_s:
            continue
        of_one = (point.samples_per_s, *speed_interval(point))
        spans.append(SpeedSpan(*(trial.request.ranks * speed for speed in of_one)))
    if not spans:
        return None
    middle = median([span.middle for span in spans])
    return SpeedSpan(middle, min(span.low for span in spans), max(span.high for span in spans))
