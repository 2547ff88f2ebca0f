"""From readings of several rounds to one row: the median, its spread, and the interval it is stated with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpudoc.bench.model import Measurement, NoCeiling, Reading
from gpudoc.stats import median, quantile


def settle(readings: Iterable[Reading]) -> tuple[Measurement, ...]:
    """One measurement per key in the order of first sight, without ceiling and doubts yet."""
    groups: dict[str, list[Reading]] = {}
    for reading in readings:
        if reading.samples:
            groups.setdefault(reading.key, []).append(reading)
    return tuple(_settle_row(group) for group in groups.values())


def _settle_row(group: Sequence[Reading]) -> Measurement:
    rounds = tuple(reading.samples for reading in group)
    pooled = [value for samples in rounds for value in samples]
    medians = [median(samples) for samples in rounds]
    p10, p90 = quantile(pooled, 0.1), quantile(pooled, 0.9)
    first = group[0]
    return Measurement(
        name=first.name,
        device=first.device,
        parameters=first.parameters,
        unit=first.unit,
        better=first.better,
        value=median(medians),
        low=min(p10, *medians),
        high=max(p90, *medians),
        rounds=rounds,
        p10=p10,
        p50=quantile(pooled, 0.5),
        p90=p90,
        context=merge_contexts(group),
        ceiling=NoCeiling("not computed yet"),
        corrupted=next((reading.corrupted for reading in group if reading.corrupted), ""),
    )


def merge_contexts(group: Sequence[Reading]) -> dict[str, float]:
    """Each context number as the median over the rounds that have it; `<name>_max` keeps its own maximum."""
    names = dict.fromkeys(name for reading in group for name in reading.context)
    merged = {}
    for name in names:
        values = [reading.context[name] for reading in group if name in reading.context]
        merged[name] = max(values) if name.endswith(("_max", "_per_cycle", "_share")) else median(values)
    return merged
