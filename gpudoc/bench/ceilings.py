"""The ceilings of this hardware, computed from the device's own facts, with the formula; unknown stays unknown."""

from __future__ import annotations

from dataclasses import dataclass

from gpudoc.bench.model import Ceiling, Measurement, NoCeiling, Situation
from gpudoc.facts.identify import gpu_at, with_address
from gpudoc.facts.model import Absent, Gpu, known
from gpudoc.knowledge.rates import (
    Rate,
    Unknown,
    cpu_unit_fma_per_cycle,
    find_rate,
    nvlink_gb_per_s,
    pcie_formula,
    pcie_gb_per_s,
)
from gpudoc.units import format_count

# GPUs that reach the host by NVLink-C2C on an Arm board (GH200, GB200), several times faster than PCIe
_MAYBE_C2C = ((9, 0), (10, 0), (10, 3))


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSpec:
    """The numbers behind a GPU's ceilings; None if unknown."""

    capability: tuple[int, int]
    sm_count: int
    brand: str | None = None
    device_id: int | None = None
    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    memory_bus_bits: int | None = None


def ceiling_of(row: Measurement, situation: Situation) -> Ceiling | NoCeiling:
    """The ceiling of `row`; the situation gives the device's facts and the other rows."""
    if row.device == "cpu":
        return _cpu(row, situation)
    match row.name:
        case "matmul" | "soak_start" | "soak_end":
            return _gpu_matmul(row, situation)
        case "device_read" | "device_write" | "device_copy" | "device_triad":
            return _gpu_memory(row, situation)
        case "h2d" | "d2h" | "bidirectional":
            return _host_link(row, situation)
        case "p2p":
            return _peer_link(row, situation)
        case "all_reduce":
            return NoCeiling("switches that reduce in the network may exceed the links")
        case _:
            return NoCeiling("nothing in the hardware's description limits it")


def matmul_ceiling(spec: GpuSpec, dtype: str, measured_clock_mhz: float | None = None) -> Ceiling | NoCeiling:
    """TFLOP/s (TOP/s for int8): SMs × multiply-adds per cycle × 2 × the highest SM clock.

    Tensor cores use the clock of the card's published peak instead, if it is known and lower.
    """
    if not spec.sm_count or not spec.sm_clock_mhz:
        return NoCeiling("the number of SMs or their highest clock is not known")
    found = find_rate(spec.capability, dtype, spec.brand, spec.device_id)
    match found:
        case Unknown(because):
            return NoCeiling(because)
        case Rate(per_cycle, source, tensor_mhz):
            scale = spec.sm_count * per_cycle * 2 / 1e6
            mhz, named = spec.sm_clock_mhz, "highest SM clock"
            if tensor_mhz is not None and tensor_mhz < mhz:
                mhz, named = tensor_mhz, "clock of the published peak"
            clock = f"{mhz:g} MHz ({named})"
            formula = f"{spec.sm_count} SMs × {per_cycle} multiply-adds per cycle × 2 × {clock}; {source}"
            at_clock = scale * measured_clock_mhz if measured_clock_mhz else None
            return Ceiling(scale * mhz, formula, at_clock)


def memory_ceiling(spec: GpuSpec, measured_clock_mhz: float | None = None) -> Ceiling | NoCeiling:
    """GB/s of the GPU's memory: memory clock × 2 × bus width / 8, with NVML's clocks and bits."""
    if not spec.memory_clock_mhz or not spec.memory_bus_bits:
        return NoCeiling("the memory's clock or bus width is not known")
    scale = 2 * spec.memory_bus_bits / 8 / 1e3
    formula = f"{spec.memory_clock_mhz:g} MHz (highest memory clock) × 2 × {spec.memory_bus_bits} bits / 8"
    at_clock = scale * measured_clock_mhz if measured_clock_mhz else None
    return Ceiling(scale * spec.memory_clock_mhz, formula, at_clock)


def spec_of(situation: Situation) -> GpuSpec | None:
    """The GPU's numbers from its facts, or from torch if those are absent; None without a capability."""
    gpu = situation.gpu
    if gpu is None:
        return None
    capability = known(gpu.capability)
    if capability is None:
        return None
    pci = situation.pci
    # torch counts the MIG slice in use; the driver counts the whole card
    count = int(situation.environment.get("sm_count", 0)) or known(gpu.sm_count) or 0
    return GpuSpec(
        capability=capability,
        sm_count=count,
        brand=known(gpu.brand),
        device_id=pci.device_id if pci else None,
        sm_clock_mhz=known(gpu.sm_clock_max_mhz),
        memory_clock_mhz=known(gpu.memory_clock_max_mhz),
        memory_bus_bits=known(gpu.memory_bus_bits),
    )


def _gpu_matmul(row: Measurement, situation: Situation) -> Ceiling | NoCeiling:
    spec = spec_of(situation)
    if spec is None:
        return NoCeiling("the driver reports nothing about this GPU")
    return matmul_ceiling(spec, str(row.parameters["dtype"]), row.context.get("sm_clock_mhz"))


def _gpu_memory(row: Measurement, situation: Situation) -> Ceiling | NoCeiling:
    spec, gpu = spec_of(situation), situation.gpu
    if spec is None or gpu is None:
        return NoCeiling("the driver reports nothing about this GPU")
    if gpu.mig_enabled is True:
        return NoCeiling("a MIG slice has a share of the memory bandwidth that the driver does not report")
    return memory_ceiling(spec, row.context.get("memory_clock_mhz"))


def _host_link(row: Measurement, situation: Situation) -> Ceiling | NoCeiling:
    gpu = situation.gpu
    if gpu is None:
        return NoCeiling("the driver reports nothing about this GPU")
    if situation.machine.host.architecture == "aarch64" and gpu.capability in _MAYBE_C2C:
        return NoCeiling("on an Arm host this GPU may be reached by NVLink-C2C instead of PCIe")
    generation, width = gpu.link.generation_max, gpu.link.width_max
    if isinstance(generation, Absent) or isinstance(width, Absent):
        return NoCeiling("the PCIe link is not visible here")
    one_way = pcie_gb_per_s(generation, width)
    if one_way is None:
        return NoCeiling(f"PCIe generation {generation} is not in the table")
    ways = 2 if row.name == "bidirectional" else 1
    seen = pcie_gb_per_s(
        int(row.context.get("link_generation_max", generation)), int(row.context.get("link_width_max", width))
    )
    formula = pcie_formula(generation, width) + (" × 2 directions" if ways == 2 else "")
    return Ceiling(ways * one_way, formula, ways * seen if seen else None)


def _peer_link(row: Measurement, situation: Situation) -> Ceiling | NoCeiling:
    source, target = (gpu_at(int(row.parameters[end]), situation.machine) for end in ("from", "to"))
    if source is None or target is None or isinstance(source.capability, Absent):
        return NoCeiling("it is not known which GPUs of the driver these are")
    links = _links_between(source, target)
    if links is None:
        return NoCeiling("it is not known which GPU each NVLink leads to")
    if links == 0:
        return _pcie_between(source, target)
    each = nvlink_gb_per_s(source.capability)
    if each is None:
        return NoCeiling("the speed of this GPU's NVLinks is not in the table")
    return Ceiling(links * each, f"{links} NVLinks × {each:g} GB/s in one direction")


def _links_between(source: Gpu, target: Gpu) -> int | None:
    """NVLinks that carry a copy between the two: they end at the other GPU, or at switches; None if unknown."""
    active = source.nvlink_active
    if isinstance(active, Absent) or active == 0:
        return 0
    if source.fabric_state == "completed":
        # every link leads to the switches, even if NVML reports another end
        return active
    if isinstance(source.nvlink_ends, Absent):
        return None
    return sum(end == "switch" or with_address(end, (target,)) is target for end in source.nvlink_ends)


def _pcie_between(source: Gpu, target: Gpu) -> Ceiling | NoCeiling:
    """The slower of the two links to the host's bridge, over which a copy without NVLink goes."""
    ways = []
    for gpu in (source, target):
        generation, width = gpu.link.generation_max, gpu.link.width_max
        if isinstance(generation, Absent) or isinstance(width, Absent):
            return NoCeiling("neither NVLink nor the PCIe link is visible here")
        one_way = pcie_gb_per_s(generation, width)
        if one_way is None:
            return NoCeiling(f"PCIe generation {generation} is not in the table")
        ways.append((one_way, pcie_formula(generation, width)))
    return Ceiling(*min(ways))


def _cpu(row: Measurement, situation: Situation) -> Ceiling | NoCeiling:
    match row.name:
        case "cpu_matmul":
            return _cpu_matmul(row, situation)
        case "memory_read" | "memory_write" | "memory_copy" | "memory_triad":
            return NoCeiling("the speed and number of the memory channels cannot be read here")
        case _:
            return NoCeiling("nothing in the hardware's description limits it")


def _cpu_matmul(row: Measurement, situation: Situation) -> Ceiling | NoCeiling:
    clock = situation.find("cpu_clock")
    if clock is None or clock.p50 <= 0:
        return NoCeiling("the CPU's clock was not measured")
    found = _cpu_rate(str(row.parameters["dtype"]), clock, situation)
    if found is None:
        return NoCeiling("the vector units' work per cycle was not measured")
    per_cycle, origin = found
    threads = int(row.parameters["threads"])
    # the fastest clock ever seen: a clock from a slow moment would not give a ceiling
    others = [one.context.get("cpu_clock_ghz_max", 0.0) for one in situation.rows]
    top = max([value for one in clock.rounds for value in one] + others)
    formula = (
        f"{format_count(threads, 'core')} × {per_cycle:g} multiply-adds per cycle ({origin}) × 2 × "
        f"{top:.2f} GHz (the fastest clock seen, by dependent adds)"
    )
    scale = threads * per_cycle * 2
    during = row.context.get("cpu_clock_ghz")
    return Ceiling(scale * top, formula, scale * during if during else None)


def _cpu_rate(dtype: str, clock: Measurement, situation: Situation) -> tuple[float, str] | None:
    """Multiply-adds per cycle of one core, and the source; bf16 runs on fp32's units if the CPU has no bf16 units."""
    flags = situation.machine.host.cpu_flags
    matrix = None if isinstance(flags, Absent) else cpu_unit_fma_per_cycle(frozenset(flags), dtype)
    measured = clock.context.get(f"{dtype}_fma_per_cycle")
    if matrix is not None and (measured is None or matrix > measured):
        return float(matrix), "the matrix unit, from its manual"
    if measured is not None:
        return measured, f"{dtype}, measured"
    fp32 = clock.context.get("fp32_fma_per_cycle")
    return (fp32, "fp32 units, measured; this CPU has no bf16 units") if fp32 is not None and dtype == "bf16" else None
