"""The health of each GPU: memory errors, the kernel log, clocks that are cut, its links, its licence."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoc.doctor.causes.live import AMD, NVIDIA, events, in_container, name_of, nvml_gpus, observe, value
from gpudoc.doctor.model import Evidence, Finder, Finding, Observation, Severity, Skip
from gpudoc.facts.model import Absent, Gpu, Machine
from gpudoc.knowledge.xids import Xid, find_xid

_GIB = 1 << 30
_BUSY_PERCENT = 50
# NVML_GPU_RECOVERY_ACTION_*: https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/error-recovery-and-response-flags.html
_RECOVERY = {
    1: "reset the GPU", 2: "reboot the node", 3: "drain peer-to-peer traffic", 4: "drain and reset the GPU",
    5: "recover the IMEX domain", 6: "reset the PCIe bus", 7: "reboot the system",
}  # fmt: skip


def _healthy_enough(machine: Machine) -> tuple[Gpu, ...]:
    return tuple(gpu for gpu in nvml_gpus(machine) if value(gpu.nvml_code, 0) == 0)


def _seen(gpu: Gpu, what: str) -> Observation:
    return observe(name_of(gpu), what, "NVML")


def _xids(machine: Machine, cause: str) -> list[tuple[Xid, Observation]]:
    """The Xids of the kernel log that point to `cause`, with the line as evidence."""
    known = ((find_xid(value(e.code, -1)), e) for e in events(machine, "xid"))
    return [(xid, observe("kernel log", e.text, "kernel log")) for xid, e in known if xid and xid.cause == cause]


def find_ecc(evidence: Evidence) -> Iterator[Finding | Skip]:
    """Uncorrectable memory errors since the driver was loaded, by the counters or by the kernel log."""
    for gpu in _healthy_enough(evidence.machine):
        count = value(gpu.ecc_uncorrected_volatile, 0)
        pending = gpu.rows_remap_pending is True or gpu.retired_pages_pending is True
        seen = [_seen(gpu, f"{count} uncorrectable memory errors since the driver was loaded")] if count else []
        if pending:
            seen.append(_seen(gpu, "memory rows or pages wait for a reset to be replaced"))
        if gpu.sram_threshold_exceeded is True:
            seen.append(_seen(gpu, "uncorrectable SRAM errors beyond the threshold for replacement"))
        if seen:
            bad = gpu.sram_threshold_exceeded is True or (count > 0 and pending)
            yield Finding(
                id="gpu_ecc_error", severity="broken" if bad else "warning", confidence=0.95, evidence=tuple(seen)
            )
    logged = _xids(evidence.machine, "gpu_ecc_error")
    if logged:
        yield Finding(id="gpu_ecc_error", severity="warning", confidence=0.9, evidence=tuple(o for _, o in logged[-2:]))


def find_fault(evidence: Evidence) -> Iterator[Finding | Skip]:
    """Memory that could not be repaired, and Xids that only defective hardware raises."""
    for gpu in _healthy_enough(evidence.machine):
        seen = []
        if gpu.rows_remap_failed is True:
            seen.append(_seen(gpu, "a memory row could not be replaced: no spare is left"))
        if gpu.repair_pending is True:
            seen.append(_seen(gpu, "a repair of a memory channel or a compute unit is pending"))
        if seen:
            severity: Severity = "broken" if gpu.rows_remap_failed is True else "warning"
            yield Finding(id="gpu_hardware_fault", severity=severity, confidence=0.96, evidence=tuple(seen))
    logged = _xids(evidence.machine, "gpu_hardware_fault")
    if logged:
        yield Finding(
            id="gpu_hardware_fault", severity="warning", confidence=0.8, evidence=tuple(o for _, o in logged[-2:])
        )


def find_reset(evidence: Evidence) -> Iterator[Finding | Skip]:
    """A GPU whose driver asks for a reset or a reboot."""
    for gpu in _healthy_enough(evidence.machine):
        action = value(gpu.recovery_action, 0)
        if action:
            seen = (_seen(gpu, f"recovery action {action}: {_RECOVERY.get(action, 'not known here')}"),)
            yield Finding(id="gpu_needs_reset", confidence=0.96, evidence=seen)


def find_gsp(evidence: Evidence) -> Iterator[Finding | Skip]:
    """The GPU's system processor that did not answer the driver at some time since boot."""
    logged = _xids(evidence.machine, "gsp_firmware_timeout")
    if logged:
        yield Finding(
            id="gsp_firmware_timeout", severity="warning", confidence=0.85, evidence=tuple(o for _, o in logged[-2:])
        )


def find_heat(evidence: Evidence) -> Iterator[Finding | Skip]:
    """Clocks that are cut by heat at this moment; the software power cap under load is how GPUs work."""
    for gpu in _healthy_enough(evidence.machine):
        reasons = set(value(gpu.throttle_reasons, ())) & {"sw_thermal", "hw_thermal"}
        if not reasons:
            continue
        limit = value(gpu.temperature_slowdown_c, 0)
        heat = f"{value(gpu.temperature_c, 0)} °C" + (f", slows down at {limit} °C" if limit else "")
        clock = f"{value(gpu.sm_clock_mhz, 0)} of {value(gpu.sm_clock_max_mhz, 0)} MHz"
        seen = (_seen(gpu, f"{', '.join(sorted(reasons))}: {heat}"), _seen(gpu, f"SM clock {clock}"))
        yield Finding(id="thermal_throttle", severity="warning", confidence=0.93, evidence=seen)


def find_power_brake(evidence: Evidence) -> Iterator[Finding | Skip]:
    """Clocks that are cut by the power supply or the system's power brake signal."""
    for gpu in _healthy_enough(evidence.machine):
        reasons = set(value(gpu.throttle_reasons, ()))
        if "hw_power_brake" in reasons or ("hw_slowdown" in reasons and "hw_thermal" not in reasons):
            seen = (_seen(gpu, ", ".join(sorted(reasons & {"hw_power_brake", "hw_slowdown"}))),)
            yield Finding(id="power_brake", severity="warning", confidence=0.9, evidence=seen)


def find_link(evidence: Evidence) -> Iterator[Finding | Skip]:
    """A PCIe link narrower than GPU and slot can, or slower than both can while the GPU works hard.

    At idle a link runs at generation 1 to save power, so its speed says nothing then.
    """
    for gpu in _healthy_enough(evidence.machine):
        link = gpu.link
        width, width_max = value(link.width, 0), value(link.width_max, 0)
        speed, speed_max = value(link.generation, 0), value(link.generation_max, 0)
        busy = value(gpu.utilization_percent, 0) >= _BUSY_PERCENT and value(gpu.performance_state, 8) <= 2
        seen = []
        if 0 < width < width_max:
            seen.append(_seen(gpu, f"PCIe x{width} of x{width_max}"))
        if busy and 0 < speed < speed_max:
            seen.append(_seen(gpu, f"PCIe generation {speed} of {speed_max} under load"))
        if seen:
            yield Finding(id="pcie_link_degraded", severity="warning", confidence=0.9, evidence=tuple(seen))


def find_nvlink(evidence: Evidence) -> Iterator[Finding | Skip]:
    """NVLinks that are down on one GPU while its likes have them up, or that the kernel log complained about."""
    known = [(g, g.nvlink_active) for g in _healthy_enough(evidence.machine) if not isinstance(g.nvlink_active, Absent)]
    for gpu, active in known:
        most = max(count for other, count in known if other.name == gpu.name)
        if active < most:
            seen = (_seen(gpu, f"{active} NVLinks up, its likes have {most}"),)
            yield Finding(id="nvlink_error", severity="warning", confidence=0.9, evidence=seen)
    logged = _xids(evidence.machine, "nvlink_error")
    if logged:
        yield Finding(id="nvlink_error", severity="warning", confidence=0.85, evidence=tuple(o for _, o in logged[-2:]))


def find_bus_errors(evidence: Evidence) -> Iterator[Finding | Skip]:
    """PCIe errors that the bus could not correct, at a GPU; corrected ones are how the bus works."""
    machine = evidence.machine
    addresses = {device.address for device in value(machine.pci, ()) if device.vendor_id in (NVIDIA, AMD)}
    logged = [
        observe("kernel log", event.text, "kernel log")
        for event in events(machine, "aer")
        if "uncorrect" in event.text.lower() and value(event.pci_address, "") in addresses
    ]
    if logged:
        yield Finding(id="pcie_bus_errors", severity="warning", confidence=0.85, evidence=tuple(logged[-2:]))


def find_lowered_power(evidence: Evidence) -> Iterator[Finding | Skip]:
    """A power limit set well below the card's own: often meant, always worth knowing."""
    for gpu in _healthy_enough(evidence.machine):
        limit, default = value(gpu.power_limit_w, 0.0), value(gpu.power_limit_default_w, 0.0)
        if 0 < limit < 0.9 * default:
            seen = (_seen(gpu, f"power limit {limit:.0f} W, the card's own is {default:.0f} W"),)
            yield Finding(id="power_limit_lowered", severity="info", confidence=0.9, evidence=seen)


def find_licence(evidence: Evidence) -> Iterator[Finding | Skip]:
    """A virtual GPU without a licence, which the driver slows down."""
    for gpu in _healthy_enough(evidence.machine):
        if gpu.licensed is False:
            yield Finding(id="vgpu_unlicensed", confidence=0.95, evidence=(_seen(gpu, "virtual GPU, not licensed"),))


def find_orphaned_memory(evidence: Evidence) -> Iterator[Finding | Skip]:
    """Memory that the driver books on processes which are gone."""
    machine = evidence.machine
    if in_container(machine):
        yield Skip("the processes of other containers cannot be seen from here")
        return
    for gpu in _healthy_enough(machine):
        gone = [process for process in value(gpu.processes, ()) if process.alive is False]
        held = sum(value(process.memory_bytes, 0) for process in gone)
        if gone and held:
            text = f"{held / _GIB:.1f} GiB held by {len(gone)} process(es) that no longer exist"
            seen = (_seen(gpu, text), _seen(gpu, f"process {gone[0].pid}"))
            yield Finding(id="gpu_memory_orphaned", severity="warning", confidence=0.85, evidence=seen)


def find_other_process(evidence: Evidence) -> Iterator[Finding | Skip]:
    """Other programs that hold most of a GPU's memory: no fault, but the first thing to know before training."""
    for gpu in _healthy_enough(evidence.machine):
        total, free = value(gpu.memory_total_bytes, 0), value(gpu.memory_free_bytes, 0)
        holders = [p for p in value(gpu.processes, ()) if p.alive is not False]
        if total and holders and free < total / 2:
            names = ", ".join(f"{value(p.name, 'process')} ({p.pid})" for p in holders[:3])
            seen = (_seen(gpu, f"{free / _GIB:.1f} of {total / _GIB:.1f} GiB free"), _seen(gpu, f"in use by {names}"))
            yield Finding(id="oom_other_process", severity="info", confidence=0.7, evidence=seen)


def find_fewer_gpus(evidence: Evidence) -> Iterator[Finding | Skip]:
    """Fewer usable GPUs than --expect-gpus says there should be."""
    expected = evidence.expectation.num_gpus
    if not expected:
        return
    if isinstance(evidence.machine.gpus, Absent):
        yield Skip(f"gpus: {evidence.machine.gpus.reason}")
        return
    usable = len(_healthy_enough(evidence.machine))
    if 0 < usable < expected:
        seen = (observe("GPUs", f"{usable} usable, {expected} expected", "NVML"),)
        yield Finding(id="fewer_gpus_than_expected", confidence=0.9, evidence=seen)


FINDERS: tuple[Finder, ...] = (
    Finder(id="gpu_ecc_error", find=find_ecc, needs=("gpus",)),
    Finder(id="gpu_hardware_fault", find=find_fault, needs=("gpus",)),
    Finder(id="gpu_needs_reset", find=find_reset, needs=("gpus",)),
    Finder(id="gsp_firmware_timeout", find=find_gsp, needs=("kernel_log",)),
    Finder(id="thermal_throttle", find=find_heat, needs=("gpus",)),
    Finder(id="power_brake", find=find_power_brake, needs=("gpus",)),
    Finder(id="pcie_link_degraded", find=find_link, needs=("gpus",)),
    Finder(id="nvlink_error", find=find_nvlink, needs=("gpus",)),
    Finder(id="pcie_bus_errors", find=find_bus_errors, needs=("kernel_log", "pci")),
    Finder(id="power_limit_lowered", find=find_lowered_power, needs=("gpus",)),
    Finder(id="vgpu_unlicensed", find=find_licence, needs=("gpus",)),
    Finder(id="gpu_memory_orphaned", find=find_orphaned_memory, needs=("gpus",)),
    Finder(id="oom_other_process", find=find_other_process, needs=("gpus",)),
    Finder(id="fewer_gpus_than_expected", find=find_fewer_gpus),
)
