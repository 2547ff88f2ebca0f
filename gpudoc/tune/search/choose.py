"""Choose settings from the measurements, with one plain sentence for each; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpudoc.profile.model import VariantTrial
from gpudoc.stats import median
from gpudoc.tune.model.gain import speed_with_data
from gpudoc.tune.model.speed import MEMORY_LEFT_SHARE, SAME_SHARE, fastest, fit_step_time, smallest_as_fast
from gpudoc.tune.search.largest import Largest
from gpudoc.tune.trial.messages import Point, Trial, Variant
from gpudoc.units import format_bytes


@dataclass(frozen=True, slots=True)
class BatchChoice:
    """The micro batch to train with, the fastest one measured, and the reason."""

    batch: int
    fastest: int | None
    why: str


def choose_batch(
    goal: str,
    points: Sequence[Point],
    largest: Largest | None,
    useful: int,
    default: int,
    ceiling: str = "the global batch",
) -> BatchChoice:
    """The micro batch for `goal`; the default batch if nothing was measured."""
    best = fastest(points)
    top = None if best is None else best.batch
    if goal == "largest" and largest is not None:
        return BatchChoice(largest.batch, top, f"micro_batch {largest.batch}: the largest that fits, {largest.proof}")
    roomy = [p for p in points if p.batch <= useful and _leaves_room(p, largest)]
    if not roomy and points:
        smallest = min(points, key=lambda p: p.batch)
        return BatchChoice(
            smallest.batch, top, f"micro_batch {smallest.batch}: nothing larger leaves 8 % of memory free"
        )
    chosen = smallest_as_fast(roomy, plain=default)
    if chosen is None or best is None:
        batch = default if largest is None else min(default, largest.batch)
        return BatchChoice(batch, top, f"micro_batch {batch}: no speed was measured, so this is the reference batch")
    return BatchChoice(chosen.batch, top, _why_batch(chosen, roomy, useful, ceiling))


def _why_batch(chosen: Point, roomy: Sequence[Point], useful: int, ceiling: str) -> str:
    best = fastest(roomy)
    assert best is not None
    speed, top = chosen.samples_per_s or 0.0, best.samples_per_s or 0.0
    text = f"micro_batch {chosen.batch}: {speed:,.4g} samples/s with data that is ready"
    if chosen.batch == best.batch:
        text += ", the fastest measured"
    elif speed >= (1 - SAME_SHARE) * top:
        text += f", within {SAME_SHARE:.0%} of the fastest ({best.batch}: {top:,.4g})"
    else:
        text += f", and the fastest ({best.batch}: {top:,.4g}) is faster only within the variation of its steps"
    text += f", with at least {MEMORY_LEFT_SHARE:.0%} of memory left"
    if chosen.batch == useful:
        text += f"; a larger one would exceed {ceiling}"
    return text


def _leaves_room(point: Point, largest: Largest | None) -> bool:
    if largest is None:
        return True
    if point.batch > largest.batch:
        return False
    if largest.line is None:
        return True
    return largest.line.at(point.batch) <= (1 - MEMORY_LEFT_SHARE) * largest.limit_bytes


def is_faster(tried: Sequence[Trial], plain: Sequence[Trial]) -> bool:
    """Whether `tried` is faster than `plain`: by 3 % at the median, and with intervals that do not overlap."""
    now, before = speed_with_data(tried), speed_with_data(plain)
    if now is None or before is None:
        return now is not None
    return now.middle > (1 + SAME_SHARE) * before.middle and now.low > before.high


def _speed(trial: Trial) -> float | None:
    return trial.points[-1].samples_per_s if trial.fits and trial.points else None


def speedup(defaults: Sequence[Trial], chosen: Sequence[Trial]) -> float | None:
    """How many times the default's samples per second the choice reaches, both fed by real loaders; None if unknown."""
    before = [s for t in defaults if (s := _speed(t)) is not None]
    after = [s for t in chosen if (s := _speed(t)) is not None]
    return median(after) / median(before) if before and after else None


def explain_variant(variant: Variant, tried: Sequence[VariantTrial], reasons: Mapping[str, str]) -> list[str]:
    """One sentence for each lever that was tried, and for each field that has its own reason."""
    touched = {name for row in tried for name in row.changes} | set(reasons)
    untried = [name for name in ("precision", "allocator") if name not in touched]
    return [
        *(row.why for row in tried),
        *dict.fromkeys(reasons.values()),
        *(f"{name} {getattr(variant, name)}: nothing else was tried" for name in untried),
    ]


def explain_largest(largest: Largest) -> str:
    """One sentence on the largest batch and its proof from both sides."""
    text = f"largest batch {largest.batch} under {format_bytes(largest.limit_bytes)}"
    if not largest.complete:
        predicted = "" if largest.predicted is None else f"; {largest.predicted:,} is predicted to fit"
        return f"{text}: it ran, and more may fit{predicted}"
    if largest.batch == largest.cap:
        text += f": it ran, and {largest.ceiling}"
    elif largest.fails_at is not None and largest.fails_with is not None:
        text += f": it ran, and {largest.fails_at} ended with {largest.fails_with.value}"
    return text + (", steady state included" if largest.settled else "")


def explain_knee(points: Sequence[Point]) -> str:
    """The fitted step time and its knee in one sentence; an empty string without a good fit."""
    line = fit_step_time(points)
    knee = None if line is None else line.knee()
    # a line that misses the measured steps, or a knee beyond them, would contradict the figures next to it
    if line is None or knee is None or not line.fits(points) or knee > max(p.batch for p in points):
        return ""
    return (
        f"a step takes {1e3 * line.fixed_s:.3g} ms + {1e3 * line.per_sample_s:.3g} ms per sample; "
        f"95 % of the highest speed is reached at batch {knee}"
    )
