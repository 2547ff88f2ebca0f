"""How far a row can be trusted: impossible values are refused, and every other weakness is said beside the figure."""

from __future__ import annotations

from dataclasses import replace

from gpudoc.bench.model import Doubt, Measurement
from gpudoc.stats import median

# above this share of its ceiling a result is a fault of measuring
IMPOSSIBLE = 1.02
WIDE = 0.10
FEW = 5
STOLEN = 0.02
BUSY_CPUS = 0.25

# what each doubt means, once for all rows
MEANINGS = {
    "impossible": "above what the hardware can do, so it was measured wrongly; the value is not shown",
    "few_samples": "too few samples for its spread to say much",
    "spread": "p10 to p90 spans so much of the median",
    "rounds_differ": "the medians of the separate processes lie so far apart",
    "stolen": "the hypervisor took so much of the CPU time away; nothing inside the machine can prevent that",
    "busy_host": "other processes kept so many CPUs busy meanwhile; stop them and measure again",
}


def assess(row: Measurement) -> Measurement:
    """`row` with its doubts, and without its value when it is above what the hardware can do."""
    doubts = (*_spread(row), *_host(row))
    share = row.share_of_ceiling
    if share is not None and share > IMPOSSIBLE:
        text = f"refused: {row.value:.4g} {row.unit} would be {share:.0%} of the ceiling"
        return replace(row, value=None, doubts=(Doubt("impossible", text), *doubts))
    return replace(row, doubts=doubts)


def _spread(row: Measurement) -> list[Doubt]:
    doubts = []
    count = sum(len(one) for one in row.rounds)
    if count < FEW:
        doubts.append(Doubt("few_samples", f"{count} samples"))
    if row.p50 > 0 and (row.p90 - row.p10) / row.p50 > WIDE:
        doubts.append(Doubt("spread", f"spread {_percent((row.p90 - row.p10) / row.p50)}"))
    medians = [median(one) for one in row.rounds]
    if len(medians) > 1 and row.p50 > 0 and (max(medians) - min(medians)) / row.p50 > WIDE:
        width = (max(medians) - min(medians)) / row.p50
        doubts.append(Doubt("rounds_differ", f"processes differ {_percent(width)}"))
    return doubts


def _percent(share: float) -> str:
    return f"{share:.0%}" if share < 2 else f"{share:.0f}-fold"


def _host(row: Measurement) -> list[Doubt]:
    doubts = []
    stolen = row.context.get("stolen_share", 0.0)
    if stolen > STOLEN:
        doubts.append(Doubt("stolen", f"{stolen:.0%} stolen"))
    others = row.context.get("other_cpus_max", 0.0)
    if others > BUSY_CPUS:
        doubts.append(Doubt("busy_host", f"{others:.1f} CPUs busy"))
    return doubts
