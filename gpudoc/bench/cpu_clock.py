"""The CPU's real clock, by a chain of dependent adds (one cycle each), and the work of its vector units per cycle."""

from __future__ import annotations

import functools
import time

from gpudoc.bench import machine_code
from gpudoc.bench.machine_code import ADDS_PER_TURN, FMAS_PER_TURN, UNITS, MachineLoop, Unit
from gpudoc.stats import median, quantile

# 31 windows of about 30 microseconds: far below a scheduler's tick, so that most are whole
WINDOWS = 31
TURNS = 1600
# the rate stays the same if the clock reads up to a fifth too low
_CLOCK_READ_LOW = 1.25


def measure_clock_ghz() -> float | None:
    """Cycles per nanosecond right now, the p75 of short windows (an interruption only lowers one); None if impossible.

    `lscpu` and `/proc/cpuinfo` show the nominal clock, and inside a virtual machine often a lower one.
    """
    loop = _loaded("adds")
    return None if loop is None else _per_ns(loop, ADDS_PER_TURN)


def measure_units(flags: frozenset[str]) -> dict[Unit, float]:
    """Vector multiply-add instructions per cycle for each unit in `flags`; empty if they cannot be measured."""
    rates: dict[Unit, float] = {}
    for unit, (needed, _) in UNITS.items():
        if not needed <= flags:
            continue
        loop = _loaded(unit)
        if loop is None:
            continue
        # clock and unit are read in turn, because the clock changes with the load
        ratios = []
        for _ in range(5):
            clock = measure_clock_ghz()
            if clock:
                ratios.append(_per_ns(loop, FMAS_PER_TURN) / clock)
        if ratios:
            rates[unit] = rate_of_the_core(median(ratios))
    return rates


def rate_of_the_core(measured: float) -> float:
    """The true rate of a core with `measured` instructions per cycle: 0.5, 1 or 2.

    No x86 core is known to do 1.5, or more than 2. A neighbour on the same core (even from another virtual machine)
    takes turns from the units but hardly slows the clock's chain of adds, so a value clearly above one rate means the
    next rate. A neighbour that takes more than 3 of 8 turns halves the rate; the highest of a run's processes counts.
    """
    return next((rate for rate in (0.5, 1.0) if measured <= rate * _CLOCK_READ_LOW), 2.0)


def why_not() -> str:
    """'' if the clock can be measured here, otherwise the reason."""
    reason = machine_code.runs_here()
    if reason:
        return reason
    return "" if _loaded("adds") is not None else "the system refuses executable memory"


@functools.cache
def _loaded(unit: Unit) -> MachineLoop | None:
    if machine_code.runs_here():
        return None
    try:
        return machine_code.load(unit)
    except OSError:
        return None


def _per_ns(loop: MachineLoop, per_turn: int) -> float:
    loop.run(TURNS)
    rates = []
    for _ in range(WINDOWS):
        start = time.perf_counter_ns()
        loop.run(TURNS)
        rates.append(per_turn * TURNS / (time.perf_counter_ns() - start))
    return quantile(rates, 0.75)
