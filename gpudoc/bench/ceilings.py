"""The most that this hardware can do, computed from the device itself, with the formula; unknown stays unknown."""

from __future__ import annotations

from gpudoc.bench.model import Ceiling, Measurement, NoCeiling, Situation


def ceiling_of(row: Measurement, situation: Situation) -> Ceiling | NoCeiling:
    """The ceiling of `row`; the situation gives what was measured beside it, such as the CPU's clock."""
    if row.device == "cpu":
        return _cpu(row, situation)
    return NoCeiling(f"no rule for {row.name} on {row.device}")


def _cpu(row: Measurement, situation: Situation) -> Ceiling | NoCeiling:
    match row.name:
        case "matmul":
            return _cpu_matmul(row, situation.find("cpu_clock"))
        case "memory_read" | "memory_write" | "memory_copy" | "memory_triad":
            return NoCeiling("the speed and number of the memory channels cannot be read here")
        case _:
            return NoCeiling("nothing in the hardware's description bounds it")


def _cpu_matmul(row: Measurement, clock: Measurement | None) -> Ceiling | NoCeiling:
    if clock is None or clock.p50 <= 0:
        return NoCeiling("the CPU's clock was not measured")
    dtype = str(row.parameters["dtype"])
    per_cycle = clock.context.get(f"{dtype}_fma_per_cycle")
    unit = dtype
    if per_cycle is None and dtype == "bf16":
        per_cycle, unit = clock.context.get("fp32_fma_per_cycle"), "fp32 units, as this CPU has none for bf16"
    if per_cycle is None:
        return NoCeiling("what the vector units do per cycle was not measured")
    threads = int(row.parameters["threads"])
    # the fastest clock of all that were seen: a ceiling from a slow moment would be none
    seen = [value for one in clock.rounds for value in one] + [row.context.get("cpu_clock_ghz", 0.0)]
    top = max(seen)
    formula = (
        f"{threads} cores × {per_cycle:g} multiply-adds per cycle ({unit}, measured) × 2 × {top:.2f} GHz "
        "(the fastest clock seen, by dependent adds)"
    )
    during = row.context.get("cpu_clock_ghz")
    scale = threads * per_cycle * 2
    return Ceiling(scale * top, formula, scale * during if during else None)
