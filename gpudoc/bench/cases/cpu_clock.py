"""The CPU's clock during the run, and its vector instructions per cycle: the basis of the ceilings."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from gpudoc.bench import cpu_clock
from gpudoc.bench.machine_code import UNITS
from gpudoc.bench.model import Case, RawReading
from gpudoc.bench.sampling import Bench, Row, sample_point

NUM_POINTS = 1


def run(bench: Bench) -> Iterator[RawReading]:
    """One row, 'cpu_clock' in GHz; its context carries `fp32_fma_per_cycle` and `bf16_fma_per_cycle` of one core."""
    row = Row(name="cpu_clock", unit="GHz", parameters={})
    reading = sample_point(bench, row, lambda: cpu_clock.measure_clock_ghz() or 0.0, bench.point_s(NUM_POINTS))
    units = cpu_clock.measure_units(frozenset(bench.plan.cpu_flags))
    context = dict(reading.context)
    for unit, rate in units.items():
        kind = "bf16" if unit.startswith("bf16") else "fp32"
        per_cycle = rate * UNITS[unit][1]
        context[f"{kind}_fma_per_cycle"] = max(context.get(f"{kind}_fma_per_cycle", 0.0), per_cycle)
    yield RawReading(
        name=row.name,
        device=row.device,
        parameters={},
        unit=row.unit,
        samples=reading.samples,
        context=context,
        round=bench.round,
        began_s=reading.began_s,
        ended_s=reading.ended_s,
    )


@functools.cache
def _why_not() -> str:
    return cpu_clock.why_not()


CASE = Case(
    name="clock",
    meaning="the CPU's clock by dependent adds",
    share=0.3,
    absent_because=lambda _bench: _why_not(),
    run=run,
    rows={
        "cpu_clock": (
            "The clock of one busy core, measured by a chain of additions in which each waits for the one before. "
            "The ceilings of the CPU's matrix products are computed from it. Low: throttling or a shared host."
        ),
    },
)
