"""How training scales with the number of ranks, and where the lost time goes; pure.

Every rank has the same micro batch at every number of ranks (weak scaling), so that the samples per second would grow
with the ranks if nothing was lost. A point is compared with a single rank that has as many threads: on a GPU the first
point, on a CPU, whose threads the ranks share, a separate run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from gpudoc.stats import median, median_interval
from gpudoc.tune.trial.messages import End, Trial
from gpudoc.units import format_seconds

Name = Literal["loader", "communication", "transfer", "contention"]
Cause = Literal["loader", "communication", "transfer", "contention", "batch_too_small", "spread"]
NAMES: tuple[Name, ...] = ("loader", "communication", "transfer", "contention")
# for each cost, the leg with it and the next leg without it
_LEG_PAIRS: Mapping[Name, tuple[str, str]] = {
    "loader": ("loaded", "exchanged"),
    "communication": ("exchanged", "computed"),
    "transfer": ("computed", "resident"),
}
# less than this share of a step is not worth a name
LEAST_SHARE = 0.02
GOOD_EFFICIENCY = 0.95
_WANTED_EFFICIENCY = 0.9
_MOST_ACCUMULATION = 64
_SAME_SPEED = 0.03
_LEAST_BLOCKS = 3


@dataclass(frozen=True, slots=True)
class SpeedSpan:
    """A measured value with a confidence interval of about 95 %, all in one unit."""

    middle: float
    low: float
    high: float

    @property
    def is_sure(self) -> bool:
        """Whether the whole interval is above zero."""
        return self.low > 0

    def over(self, whole: float) -> SpeedSpan:
        """The same as a share of `whole`."""
        return SpeedSpan(self.middle / whole, self.low / whole, self.high / whole)

    def minus(self, other: SpeedSpan) -> SpeedSpan:
        """The difference of two values measured apart."""
        return SpeedSpan(self.middle - other.middle, self.low - other.high, self.high - other.low)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingPoint:
    """The result for one number of ranks: samples/s of all ranks, seconds per step, and where time was lost.

    `efficiency` is relative to a single rank; `losses` are shares of the step that a single rank does not spend.
    `compute_s` is the part of a step that grows with its samples, `fixed_s` the rest. None means not measured.
    """

    ranks: int
    threads: int
    end: End = End.FITS
    detail: str = ""
    step_s: float | None = None
    samples_per_s: SpeedSpan | None = None
    speedup: float | None = None
    efficiency: SpeedSpan | None = None
    losses: Mapping[Name, SpeedSpan] | None = None
    compute_s: float | None = None
    fixed_s: float | None = None
    loader_s: float | None = None
    cause: Cause | None = None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The setup of a measurement: the value of --model, the device, the micro batch, whether it is tuned, the data."""

    model: str
    on_gpu: bool
    batch: int
    num_samples: int
    tuned: bool = False
    pins: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """All points, the setup, the verdict in one sentence and the command that helps."""

    device: str
    batch: int
    settings_from: str
    gradient_bytes: int
    points: tuple[ScalingPoint, ...]
    verdict: str
    command: str
    notes: tuple[str, ...] = ()

    @property
    def is_answered(self) -> bool:
        """Whether several ranks ran, so that there is something to compare."""
        return any(point.ranks > 1 and point.samples_per_s is not None for point in self.points)

    def document(self) -> dict[str, object]:
        """The answer as plain data: the content of `scaling` in gpudoc.tune.v1."""
        return {
            "device": self.device,
            "kind": "weak",
            "micro_batch": self.batch,
            "settings_from": self.settings_from,
            "gradient_bytes": self.gradient_bytes,
            "points": [counted(point) for point in self.points],
            "verdict": self.verdict,
            "command": self.command,
            "notes": list(self.notes),
        }


def assess_point(trial: Trial, alone: Trial, threads: int, first: ScalingPoint | None) -> ScalingPoint:
    """The point of `trial`; `alone` is one rank with as many threads, `first` the point of one rank."""
    ranks, batch = trial.request.ranks, trial.request.batches[0]
    if not trial.fits or not trial.legs.get("loaded"):
        return ScalingPoint(ranks=ranks, threads=threads, end=trial.end, detail=trial.detail)
    step = _span(trial.legs["loaded"])
    rate = SpeedSpan(ranks * batch / step.middle, ranks * batch / step.high, ranks * batch / step.low)
    fixed = _fixed_s(alone)
    point = ScalingPoint(
        ranks=ranks,
        threads=threads,
        step_s=step.middle,
        samples_per_s=rate,
        speedup=1.0 if first is None or first.samples_per_s is None else rate.middle / first.samples_per_s.middle,
        fixed_s=fixed,
        compute_s=_span(_innermost(alone)).middle - fixed if alone.fits and alone.legs else None,
        loader_s=max(0.0, _difference(trial, "loader").middle),
    )
    if ranks == 1:
        return _with(point, why=_why_alone(point))
    if not alone.fits or not alone.legs.get("loaded"):
        return _with(point, why="one rank alone could not be measured, so there is nothing to compare with")
    base = _span(alone.legs["loaded"])
    point = _with(
        point,
        efficiency=SpeedSpan(base.middle / step.middle, base.low / step.high, base.high / step.low),
        losses=_losses(trial, alone),
    )
    cause = name_cause(point)
    return _with(point, cause=cause, why=_why(point, cause))


def name_cause(point: ScalingPoint) -> Cause | None:
    """The cause of most of the loss; None if little is lost, "spread" if the runs differ too much to say."""
    if point.efficiency is None or point.efficiency.middle >= GOOD_EFFICIENCY:
        return None
    sure = {n: s for n, s in (point.losses or {}).items() if s.is_sure and s.middle >= LEAST_SHARE}
    if not sure:
        return "spread"
    top = max(sure, key=lambda name: sure[name].middle)
    if top != "communication" or point.step_s is None or point.fixed_s is None or point.compute_s is None:
        return top
    exchange_s = sure[top].middle * point.step_s
    return "batch_too_small" if point.fixed_s + exchange_s > point.compute_s else top


def useful_accumulation(point: ScalingPoint) -> tuple[int, float] | None:
    """(micro batches per exchange that reach 90 %, the efficiency computed for them); None if no count reaches it."""
    if point.losses is None or point.step_s is None or point.efficiency is None:
        return None
    exchange_s = max(0.0, point.losses["communication"].middle) * point.step_s
    rest_s = point.step_s - exchange_s
    alone_s = point.efficiency.middle * point.step_s
    for count in range(2, _MOST_ACCUMULATION + 1):
        reached = alone_s / (rest_s + exchange_s / count)
        if reached >= _WANTED_EFFICIENCY:
            return count, reached
    return None


def fastest(points: Sequence[ScalingPoint]) -> ScalingPoint | None:
    """The fewest ranks within 3 % of the most samples per second; None if nothing ran."""
    known = [(p.samples_per_s.middle, p) for p in points if p.samples_per_s is not None]
    if not known:
        return None
    top = max(rate for rate, _ in known)
    return min((p for rate, p in known if rate >= (1 - _SAME_SPEED) * top), key=lambda p: p.ranks)


def conclude(points: Sequence[ScalingPoint], setup: Setup) -> tuple[str, str]:
    """(one sentence, the command to type) for all points together."""
    on_gpu = setup.on_gpu
    several = [p for p in points if p.ranks > 1 and p.samples_per_s is not None]
    if not several:
        return "nothing to compare: only one rank was measured", ""
    most, best = several[-1], fastest(points)
    assert best is not None
    what = "GPUs" if on_gpu else "processes"
    share = "" if most.efficiency is None else f", {most.efficiency.middle:.0%} efficiency"
    threads = "" if on_gpu else f" with {_count(most.threads, 'thread')} each"
    one = "one" if on_gpu else f"one with {_count(points[0].threads, 'thread')}"
    sentence = f"{most.ranks} {what}{threads} train at {most.speedup or 0:.2f} times the speed of {one}{share}"
    if most.cause is not None:
        sentence += f"; {_SHORT[most.cause]}"
    if best is not most:
        sentence += f"; there is no gain beyond {best.ranks}" if best.ranks > 1 else f"; one of the {what} is enough"
    return sentence, _remedy(most, best, setup)


_SHORT: Mapping[Cause, str] = {
    "loader": "the data does not come faster",
    "communication": "the exchange of gradients takes most of the rest",
    "transfer": "the copies to the GPUs slow each other down",
    "contention": "the ranks slow each other down",
    "batch_too_small": "the batch per rank is too small for the exchange of gradients",
    "spread": "the runs differ too much to say what takes most of the rest",
}


def _remedy(most: ScalingPoint, best: ScalingPoint, setup: Setup) -> str:
    train, tune = f"gpudoc train --model {setup.model}", f"gpudoc tune --model {setup.model}"
    device = "" if setup.on_gpu else " --device cpu"
    match most.cause:
        case "loader":
            return f"{tune}{device} --only loader --gpus {most.ranks}"
        case "batch_too_small" if not setup.tuned:
            return f"{tune}{device} --only batch,speed --gpus {most.ranks}"
        case "batch_too_small" | "communication":
            return f"{train}{device} --gpus {most.ranks}{_rarer_exchange(most, setup)}"
        case "transfer" if not setup.pins:
            return f"{train}{device} --gpus {most.ranks} --set pin_memory=true"
        case "transfer":
            return "gpudoc bench --only copies"
        case "spread":
            return f"{tune}{device} --only scaling --fresh --budget 15m"
        case "contention" | None:
            return f"{train}{device} --gpus {best.ranks}"


def _rarer_exchange(point: ScalingPoint, setup: Setup) -> str:
    """Options that exchange gradients less often; empty if that is not enough or not possible."""
    found = useful_accumulation(point)
    if found is None or (whole := found[0] * setup.batch * point.ranks) > setup.num_samples:
        return ""
    return f" --batch-size {setup.batch} --set global_batch={whole}"


def _why(point: ScalingPoint, cause: Cause | None) -> str:
    assert point.step_s is not None
    losses = point.losses or {}
    if cause is None:
        return "little is lost"
    if cause == "spread":
        return "the loss is within the spread of the runs"
    name: Name = "communication" if cause == "batch_too_small" else cause
    lost = losses[name]
    of_step = f"{format_seconds(lost.middle * point.step_s)} of a step of {format_seconds(point.step_s)}"
    match cause:
        case "loader":
            return f"waiting for data takes {of_step}"
        case "communication":
            return f"exchanging gradients takes {of_step}{_with_accumulation(point)}"
        case "transfer":
            return f"copies to the device take {of_step} more than for one rank alone"
        case "contention":
            return f"the ranks lose {of_step} to each other before anything is exchanged: CPUs, memory or power"
        case "batch_too_small":
            work = format_seconds(point.compute_s or 0.0)
            return f"exchanging gradients takes {of_step}; the samples take {work}{_with_accumulation(point)}"


def _with_accumulation(point: ScalingPoint) -> str:
    found = useful_accumulation(point)
    return "" if found is None else f"; {found[1]:.0%} is computed for {found[0]} micro batches per exchange"


def _why_alone(point: ScalingPoint) -> str:
    """The shares of one rank's step for loading and fixed costs, if they are 5 % of the step or more."""
    assert point.step_s is not None
    parts = (("waiting for data", point.loader_s or 0.0), ("fixed cost", point.fixed_s or 0.0))
    worth = [f"{name} {seconds / point.step_s:.0%}" for name, seconds in parts if seconds >= 0.05 * point.step_s]
    return f"of its step: {', '.join(worth)}" if worth else ""


def _losses(trial: Trial, alone: Trial) -> Mapping[Name, SpeedSpan]:
    """Shares of the step at these ranks; their middles add up to 1 - efficiency."""
    whole = median(trial.legs["loaded"])
    lost = {name: _difference(trial, name).minus(_difference(alone, name)).over(whole) for name in _LEG_PAIRS}
    lost["contention"] = _span(_innermost(trial)).minus(_span(_innermost(alone))).over(whole)
    on_gpu = "resident" in trial.legs
    return {name: lost[name] for name in NAMES if name != "transfer" or on_gpu}


def _difference(trial: Trial, name: Name) -> SpeedSpan:
    """Seconds per step by which the outer leg is longer than the inner one; zero if a leg was not run."""
    outer, inner = (_leg(trial, leg) for leg in _LEG_PAIRS[name])
    if outer is inner or not outer or not inner:
        return SpeedSpan(0.0, 0.0, 0.0)
    if name == "loader" or len(outer) != len(inner) or len(outer) < _LEAST_BLOCKS:
        return _span(outer).minus(_span(inner))
    # blocks of one turn ran right after each other: a slowdown of both is not a difference
    paired = [a - b for a, b in zip(outer, inner, strict=True)]
    low, high = median_interval(paired)
    return SpeedSpan(median(outer) - median(inner), low, high)


def _leg(trial: Trial, name: str) -> Sequence[float]:
    """A leg's blocks, or those of the leg that replaces it: one rank exchanges nothing, and a CPU copies nothing."""
    standing_in = {"exchanged": "computed", "resident": "computed"}
    found = trial.legs.get(name)
    return found if found is not None else trial.legs.get(standing_in.get(name, ""), ())


def _innermost(trial: Trial) -> Sequence[float]:
    return trial.legs.get("resident") or trial.legs["computed"]


def _fixed_s(alone: Trial) -> float:
    """Seconds of one rank's step that do not depend on the batch, from two batches; 0 if only one was run."""
    whole, less = alone.legs.get("computed"), alone.legs.get("small")
    batch = alone.request.batches[0]
    small = max(1, batch // 4)
    if not whole or not less or small >= batch:
        return 0.0
    long, short = median(whole), median(less)
    return min(median(_innermost(alone)), max(0.0, (batch * short - small * long) / (batch - small)))


def _span(values: Sequence[float]) -> SpeedSpan:
    """The median and its interval; half to twice the median below three blocks, which do not show a spread."""
    middle = median(values)
    low, high = median_interval(values) if len(values) >= _LEAST_BLOCKS else (middle / 2, middle * 2)
    return SpeedSpan(middle, low, high)


def _with(point: ScalingPoint, **changes: object) -> ScalingPoint:
    return replace(point, **changes)  # type: ignore[arg-type]


def _count(number: int, name: str) -> str:
    return f"{number} {name}" if number == 1 else f"{number} {name}s"


def counted(point: ScalingPoint) -> dict[str, object]:
    """One point as plain data, in seconds and shares."""

    def span(value: SpeedSpan | None) -> dict[str, float] | None:
        return None if value is None else {k: round(getattr(value, k), 6) for k in ("middle", "low", "high")}

    return {
        "ranks": point.ranks,
        "threads_per_rank": point.threads,
        "end": point.end.value,
        "samples_per_s": None if point.samples_per_s is None else round(point.samples_per_s.middle, 2),
        "samples_per_s_interval": _ends(point.samples_per_s, 2),
        "times_one_rank": None if point.speedup is None else round(point.speedup, 4),
        "efficiency": None if point.efficiency is None else round(point.efficiency.middle, 4),
        "efficiency_interval": _ends(point.efficiency, 4),
        "seconds": {
            "step": point.step_s,
            "work_on_samples": point.compute_s,
            "fixed": point.fixed_s,
            "waiting_for_data": point.loader_s,
        },
        "lost": {name: span(value) for name, value in (point.losses or {}).items()},
        "cause": point.cause,
        "why": point.why,
        "detail": point.detail,
    }


def _ends(value: SpeedSpan | None, digits: int) -> list[float] | None:
    return None if value is None else [round(value.low, digits), round(value.high, digits)]
