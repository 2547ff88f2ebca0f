"""Each cause of a low figure, decided by readings during the run and by the machine's facts.

A finding has the figures of this run; its row in knowledge/causes says what the cause means and what to do.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from gpudoc.bench.model import Measurement, Situation
from gpudoc.doctor.model import Card, Finding, Observation
from gpudoc.doctor.spinning import Crowd, find_spinning
from gpudoc.facts.model import Absent, Gpu
from gpudoc.knowledge.rates import is_half_rate
from gpudoc.process.openmp import RUNTIMES, WAITING, OpenMp
from gpudoc.stats import median

# a reason explains a lower median if it appears in this share of the readings
OFTEN = 0.2
THERMAL = ("sw_thermal", "hw_thermal")
POWER = ("sw_power_cap", "hw_power_brake")
# somebody has set the clocks if they are below this share of the highest clock and the driver gives no reason
CLOCK_CUT = 0.85
# below this share of its first speed, a soaked GPU has become slower
FALLEN = 0.95


def _finding(
    id_: str,
    title: str,
    *evidence: Observation,
    gpu: Gpu | None = None,
    severity: Literal["warning", "info"] = "warning",
) -> Finding:
    cards = () if gpu is None else (Card.of(gpu),)
    return Finding(id=id_, severity=severity, confidence=0.9, title=title, evidence=evidence, cards=cards)


def _seen(name: str, value: str) -> Observation:
    return Observation(name, value, "read during the run")


def link_degraded(row: Measurement, situation: Situation) -> Finding | None:
    """The link ran at a lower generation or width under load than GPU and slot agree on."""
    gpu = situation.gpu
    generation, width = row.context.get("link_generation_max"), row.context.get("link_width_max")
    if gpu is None or generation is None or width is None:
        return None
    best_generation, best_width = gpu.link.generation_max, gpu.link.width_max
    if isinstance(best_generation, Absent) or isinstance(best_width, Absent):
        return None
    if generation >= best_generation and width >= best_width:
        return None
    return _finding(
        "pcie_link_degraded",
        f"The PCIe link ran at Gen{generation:.0f} x{width:.0f} instead of Gen{best_generation} x{best_width}",
        _seen("gpu.link", f"Gen{generation:.0f} x{width:.0f} during the copies, so it was not saving power at rest"),
        gpu=gpu,
    )


def wrong_node(_row: Measurement, situation: Situation) -> Finding | None:
    """The process was kept from the CPUs next to the GPU, so every copy crosses to another socket."""
    gpu, host = situation.gpu, situation.machine.host
    if gpu is None or isinstance(gpu.numa_node, Absent) or isinstance(host.numa_nodes, Absent) or host.numa_nodes < 2:
        return None
    if gpu.numa_node >= 0 and situation.environment.get("near_cpus", 0):
        return None
    hidden = gpu.numa_node < 0
    reason = "the BIOS does not report the GPU's node" if hidden else "this process may not use a CPU of that node"
    return _finding(
        "process_far_from_gpu",
        f"The copies were not made from the GPU's memory node: {reason}",
        Observation("gpu.numa_node", str(gpu.numa_node), "machine"),
        gpu=gpu,
    )


def throttled_by_heat(row: Measurement, situation: Situation) -> Finding | None:
    """The card cut its clocks because it was hot."""
    seen = _throttling(row, THERMAL)
    hottest = row.context.get("temperature_c_max")
    at = "" if hottest is None else f" ({hottest:.0f} °C)"
    title = f"The GPU slowed down because of heat{at}"
    return _finding("thermal_throttle", title, *seen, gpu=situation.gpu) if seen else None


def slowed_by_soaking(situation: Situation) -> Finding | None:
    """The cause of a GPU slower at the end of a soak than at its start; heat also if it cut the clocks all along."""
    start, end = situation.find("soak_start"), situation.find("soak_end")
    if start is None or end is None or not start.value or not end.value:
        return None
    before, after = (f"{row.value:.4g} {row.unit}{_state(row)}" for row in (start, end))
    curve = _seen("bench.soak", f"{before} at first, {after} at the end of {end.parameters['seconds']:g} s")
    hot = throttled_by_heat(end, situation)
    if hot is not None:
        return replace(hot, evidence=(curve, *hot.evidence))
    if end.value >= FALLEN * start.value:
        return None
    capped = throttled_by_power(end, situation)
    if capped is not None:
        return replace(capped, evidence=(curve, *capped.evidence))
    title = (
        f"The GPU became {1 - end.value / start.value:.0%} slower during the products, and the driver gives no reason"
    )
    return _finding("cause_not_found", title, curve, gpu=situation.gpu)


def _state(row: Measurement) -> str:
    """' (1740 MHz, 61 °C)', without the values that were not read."""
    clock, hottest = row.context.get("sm_clock_mhz"), row.context.get("temperature_c_max")
    parts = [f"{clock:.0f} MHz" if clock is not None else "", f"{hottest:.0f} °C" if hottest is not None else ""]
    known = [part for part in parts if part]
    return f" ({', '.join(known)})" if known else ""


def throttled_by_power(row: Measurement, situation: Situation) -> Finding | None:
    """The card cut its clocks at its power limit; normal for long products, unless the limit was lowered."""
    seen, gpu = _throttling(row, POWER), situation.gpu
    if not seen:
        return None
    if row.context.get("throttled_hw_power_brake_share", 0.0) >= OFTEN:
        return _finding("power_brake", "", *seen, gpu=gpu)
    limit = None if gpu is None or isinstance(gpu.power_limit_w, Absent) else gpu.power_limit_w
    default = None if gpu is None or isinstance(gpu.power_limit_default_w, Absent) else gpu.power_limit_default_w
    if limit is not None and default is not None and limit < default * 0.99:
        title = f"The GPU reached its power limit of {limit:.0f} W, which is set below the default of {default:.0f} W"
        return _finding("power_limit_lowered", title, *seen, gpu=gpu)
    # a card at its default limit does all it can: a T4 or L4 reaches it in every long multiplication
    return _finding("power_limit_reached", "", *seen, gpu=gpu, severity="info")


def _throttling(row: Measurement, reasons: tuple[str, ...]) -> tuple[Observation, ...]:
    """How often each reason for cut clocks was seen, with the clock; empty if none was seen often."""
    shares = {reason: row.context.get(f"throttled_{reason}_share", 0.0) for reason in reasons}
    seen = [
        _seen(f"throttle.{reason}", f"{share:.0%} of the time") for reason, share in shares.items() if share >= OFTEN
    ]
    clock = row.context.get("sm_clock_mhz")
    if seen and clock is not None:
        seen.append(_seen("gpu.sm_clock_mhz", f"{clock:.0f}"))
    return tuple(seen)


def clocks_limited(row: Measurement, situation: Situation) -> Finding | None:
    """The clock stayed low although heat and power did not limit it: application clocks or locked clocks."""
    gpu, clock = situation.gpu, row.context.get("sm_clock_mhz")
    if gpu is None or clock is None or isinstance(gpu.sm_clock_max_mhz, Absent):
        return None
    if any(row.context.get(f"throttled_{reason}_share", 0.0) >= OFTEN for reason in (*THERMAL, *POWER)):
        return None
    if clock >= CLOCK_CUT * gpu.sm_clock_max_mhz:
        return None
    return _finding(
        "clocks_limited",
        f"The GPU ran at {clock:.0f} MHz, its highest clock is {gpu.sm_clock_max_mhz} MHz",
        _seen("gpu.sm_clock_mhz", f"{clock:.0f}"),
        gpu=gpu,
    )


def other_process(row: Measurement, situation: Situation) -> Finding | None:
    """Another process used the card during the run."""
    count = row.other_gpu_processes
    if not count:
        return None
    return _finding(
        "gpu_shared",
        f"{count} other process{'es' if count > 1 else ''} used the GPU during the run",
        _seen("gpu.processes", f"{count} besides gpudoc"),
        gpu=situation.gpu,
    )


def virtual_machine(_row: Measurement, situation: Situation) -> Finding | None:
    """A GPU that is passed through or shared by a hypervisor."""
    gpu = situation.gpu
    kind = None if gpu is None or isinstance(gpu.virtualization, Absent) else gpu.virtualization
    if kind not in ("passthrough", "vgpu"):
        return None
    return _finding(
        "virtualised_gpu",
        f"The GPU belongs to a virtual machine ({kind})",
        Observation("gpu.virtualization", kind, "machine"),
        gpu=gpu,
    )


def cpu_quota(row: Measurement, situation: Situation) -> Finding | None:
    """The container's CPU quota is below the number of threads that ran."""
    quota = situation.machine.container.cpu_quota_cores
    threads = float(row.parameters.get("threads", 1))
    if isinstance(quota, Absent) or quota >= threads:
        return None
    return _finding(
        "cgroup_cpu_limit",
        f"The container may use {quota:g} CPUs, and {threads:g} threads ran",
        Observation("container.cpu_quota_cores", f"{quota:g}", "machine"),
    )


def cpu_stolen(row: Measurement, _situation: Situation) -> Finding | None:
    """The hypervisor gave CPU time to other machines."""
    share = row.context.get("stolen_share", 0.0)
    if share < 0.05:
        return None
    return _finding(
        "cpu_stolen",
        f"The hypervisor took {share:.0%} of the CPU time away",
        _seen("cpu.steal", f"{share:.0%}"),
    )


def cpu_busy(row: Measurement, _situation: Situation) -> Finding | None:
    """Other processes of this machine used the CPUs."""
    others = row.context.get("other_cpus_max", 0.0)
    if others < 0.25:
        return None
    return _finding(
        "cpu_busy",
        f"Other processes kept {others:.1f} CPUs busy during the run",
        _seen("cpu.others", f"{others:.1f} CPUs"),
    )


LINK_CAUSES = (link_degraded, wrong_node, other_process, virtual_machine)
LOAD_CAUSES = (throttled_by_heat, throttled_by_power, clocks_limited, other_process, virtual_machine)
CPU_CAUSES = (cpu_quota, cpu_stolen, cpu_busy)


def slot_limited(situation: Situation) -> Finding | None:
    """The GPU supports more than its slot: its own highest generation is above that of GPU and system together."""
    gpu = situation.gpu
    if gpu is None:
        return None
    own, both = gpu.link.generation_gpu_max, gpu.link.generation_max
    if isinstance(own, Absent) or isinstance(both, Absent) or own <= both:
        return None
    return _finding(
        "pcie_slot_limits_gpu",
        f"The slot allows only PCIe Gen{both}, but the GPU supports Gen{own}; the ceilings shown here are the slot's",
        Observation("gpu.link.generation_gpu_max", str(own), "machine"),
        gpu=gpu,
        severity="info",
    )


def half_rate(situation: Situation) -> Finding | None:
    """The card accumulates 16-bit products in 32 bits, as torch asks it to, at half its rate."""
    gpu = situation.gpu
    if gpu is None or isinstance(gpu.capability, Absent):
        return None
    if not any(row.name == "matmul" and row.device != "cpu" for row in situation.rows):
        return None
    brand = None if isinstance(gpu.brand, Absent) else gpu.brand
    if not is_half_rate(gpu.capability, brand, situation.pci.device_id if situation.pci else None):
        return None
    return _finding(
        "half_rate_accumulation",
        "",
        Observation("gpu.brand", str(brand), "machine"),
        gpu=gpu,
        severity="info",
    )


def pageable_copies(situation: Situation) -> Finding | None:
    """How much faster copies from page-locked memory are on this machine, if they are."""
    best: dict[str, float] = {}
    for row in situation.rows:
        if row.name == "h2d" and row.value is not None:
            kind = str(row.parameters.get("host"))
            best[kind] = max(best.get(kind, 0.0), row.value)
    pinned, pageable = best.get("pinned"), best.get("pageable")
    if not pinned or not pageable or pageable >= 0.8 * pinned:
        return None
    return _finding(
        "pageable_copies",
        f"Copies from ordinary memory reach {pageable / pinned:.0%} of the speed of those from page-locked memory",
        _seen("bench.h2d", f"{pageable:.3g} GB/s pageable, {pinned:.3g} GB/s pinned"),
        severity="info",
    )


def spinning_threads(situation: Situation) -> Finding | None:
    """Threads of the CPU measurements that spin for CPUs on which other processes compute."""
    shared = [row for row in situation.rows if row.device == "cpu" and float(row.parameters.get("threads", 1)) > 1]
    others = [row.context["other_cpus_max"] for row in shared if "other_cpus_max" in row.context]
    cpus, known = situation.machine.host.cpus_usable, situation.environment
    if not others or isinstance(cpus, Absent):
        return None
    threads = max(int(row.parameters["threads"]) for row in shared)
    runtime = known.get("openmp")
    openmp = OpenMp(
        next((name for name in RUNTIMES if name == runtime), None),
        {name: str(known[name.lower()]) for name in WAITING if name.lower() in known},
    )
    return find_spinning(Crowd(threads=threads, cpus=cpus, other_cpus=median(others), openmp=openmp))
