"""Compares GPUs with their model's ceilings: a fleet that is slow everywhere has no odd GPU, but is below them."""

from __future__ import annotations

from dataclasses import dataclass

from gpudoc.bench.ceilings import GpuSpec, matmul_ceiling, memory_ceiling
from gpudoc.bench.model import Ceiling, NoCeiling
from gpudoc.bench.verdicts import normal_share
from gpudoc.facts.model import Absent, known
from gpudoc.fleet.record import FleetGpu, FleetRecord, Measure
from gpudoc.fleet.scores import values_of
from gpudoc.knowledge.rates import pcie_formula, pcie_gb_per_s
from gpudoc.stats import median

_ENOUGH = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """One measure of one model: the GPUs' median, the ceiling with its formula and source, and the share of it."""

    measure: Measure
    model: str
    gpus: int
    middle: float
    ceiling: float
    formula: str
    normal: float

    @property
    def share(self) -> float:
        """The median over the ceiling."""
        return self.middle / self.ceiling

    @property
    def is_low(self) -> bool:
        """Whether half of the GPUs are below the normal share for the model."""
        return self.share < self.normal


def expectations(record: FleetRecord) -> tuple[Expected, ...]:
    """Every measure that has a ceiling, by model."""
    found: dict[tuple[str, str], Expected] = {}
    for measure in record.measures:
        if measure.scope != "gpu" or measure.attempt != 1 or measure.load != "alone":
            continue
        by_model: dict[str, list[tuple[FleetGpu, float]]] = {}
        for at, value in values_of(measure).items():
            gpu = record.nodes[at[0].node].gpus[at[0].gpu]
            if not isinstance(gpu.model, Absent):
                by_model.setdefault(gpu.model, []).append((gpu, value))
        for model, members in by_model.items():
            one = _expected(measure, model, members)
            # the best of several sizes and shapes shows the hardware's speed
            key = (model, f"{measure.name} {measure.parameters.get('dtype', measure.parameters.get('host', ''))}")
            if one is not None and (key not in found or one.share > found[key].share):
                found[key] = one
    return tuple(found.values())


def _expected(measure: Measure, model: str, members: list[tuple[FleetGpu, float]]) -> Expected | None:
    # all cards of one model have the same ceiling, so a few of them are enough
    for gpu, _ in members[:_ENOUGH]:
        ceiling, normal = _ceiling(measure, gpu)
        if isinstance(ceiling, Ceiling):
            return Expected(
                measure=measure,
                model=model,
                gpus=len(members),
                middle=median([value for _, value in members]),
                ceiling=ceiling.value,
                formula=ceiling.formula,
                normal=normal,
            )
    return None


def _ceiling(measure: Measure, gpu: FleetGpu) -> tuple[Ceiling | NoCeiling, float]:
    capability = known(gpu.capability)
    if capability is None:
        return NoCeiling("the capability is not known"), 0.0
    spec = GpuSpec(
        capability=capability,
        sm_count=known(gpu.sm_count) or 0,
        brand=known(gpu.brand),
        device_id=known(gpu.device_id),
        sm_clock_mhz=known(gpu.sm_clock_max_mhz),
        memory_clock_mhz=known(gpu.memory_clock_max_mhz),
        memory_bus_bits=known(gpu.memory_bus_bits),
    )
    generation, width = known(gpu.link_generation_max), known(gpu.link_width_max)
    normal = normal_share(measure.name, measure.parameters, generation or 0)
    if normal is None:
        return NoCeiling("what is normal is not known"), 0.0
    if measure.name == "matmul":
        return matmul_ceiling(spec, str(measure.parameters.get("dtype", ""))), normal
    if measure.name.startswith("device_"):
        return memory_ceiling(spec), normal
    rate = None if generation is None or width is None else pcie_gb_per_s(generation, width)
    if measure.name not in ("h2d", "d2h") or generation is None or width is None or rate is None:
        return NoCeiling("the link is not known"), 0.0
    return Ceiling(rate, pcie_formula(generation, width)), normal
