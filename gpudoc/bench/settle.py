"""Turns readings of several rounds into one row: the median, its spread, and its stated interval."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import mean, stdev

from gpudoc.bench.model import Measurement, NoCeiling, NotMeasured, RawReading
from gpudoc.bench.sampling import MIN_SAMPLES
from gpudoc.stats import median, quantile

# two-sided 95 % quantile of Student's t for that many values (NIST/SEMATECH e-Handbook, 1.3.6.7.2)
_STUDENT = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365}


def settle(readings: Iterable[RawReading]) -> tuple[Measurement, ...]:
    """One measurement per key in the order of first appearance, still without ceiling and doubts."""
    groups: dict[str, list[RawReading]] = {}
    for reading in readings:
        if reading.samples:
            groups.setdefault(reading.key, []).append(reading)
    return tuple(_settle_row(group) for group in groups.values())


def split_enough(rows: Iterable[Measurement]) -> tuple[tuple[Measurement, ...], tuple[NotMeasured, ...]]:
    """The rows with MIN_SAMPLES, and the others with the reason: fewer samples describe a moment, not the machine."""
    enough, few = [], []
    for row in rows:
        count = sum(len(one) for one in row.rounds)
        if count >= MIN_SAMPLES or row.corrupted:
            enough.append(row)
        else:
            because = f"{count} of {MIN_SAMPLES} samples fit into the time; without --quick there is more"
            few.append(NotMeasured(row.key, because))
    return tuple(enough), tuple(few)


def _settle_row(group: Sequence[RawReading]) -> Measurement:
    rounds = tuple(reading.samples for reading in group)
    pooled = [value for samples in rounds for value in samples]
    medians = [median(samples) for samples in rounds]
    p10, p90 = quantile(pooled, 0.1), quantile(pooled, 0.9)
    low, high = interval(medians)
    first = group[0]
    return Measurement(
        name=first.name,
        device=first.device,
        parameters=first.parameters,
        unit=first.unit,
        better=first.better,
        value=median(medians),
        low=min(p10, low),
        high=max(p90, high),
        rounds=rounds,
        p10=p10,
        p50=quantile(pooled, 0.5),
        p90=p90,
        context=merge_contexts(group),
        ceiling=NoCeiling("not computed yet"),
        corrupted=next((reading.corrupted for reading in group if reading.corrupted), ""),
    )


def interval(medians: Sequence[float]) -> tuple[float, float]:
    """95 % interval of the mean of the processes' medians, with the medians themselves inside; a point for one process.

    Three processes say little about a fourth, and Student's factor says how little.
    """
    if len(medians) < 2:
        return medians[0], medians[0]
    half = _STUDENT.get(len(medians), 2.0) * stdev(medians) / len(medians) ** 0.5
    return max(0.0, min(*medians, mean(medians) - half)), max(*medians, mean(medians) + half)


def merge_contexts(group: Sequence[RawReading]) -> dict[str, float]:
    """Each context number as the median over the rounds that have it; `<name>_max` keeps its own maximum."""
    names = dict.fromkeys(name for reading in group for name in reading.context)
    merged = {}
    for name in names:
        values = [reading.context[name] for reading in group if name in reading.context]
        merged[name] = max(values) if name.endswith(("_max", "_per_cycle", "_share")) else median(values)
    return merged
