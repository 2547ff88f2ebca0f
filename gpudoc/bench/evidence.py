"""Each cause of a low figure, decided by what was read during the run and by the machine's facts."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from gpudoc.bench.model import Measurement, Situation
from gpudoc.doctor.model import Finding, Observation, Remedy
from gpudoc.doctor.spinning import Crowd, find_spinning
from gpudoc.facts.model import Absent
from gpudoc.knowledge.rates import is_half_rate
from gpudoc.process.openmp import RUNTIMES, WAITING, OpenMp
from gpudoc.stats import median

# a reason that was seen in this share of the looks explains a lower median
OFTEN = 0.2
THERMAL = ("sw_thermal", "hw_thermal")
POWER = ("sw_power_cap", "hw_power_brake")
# below this share of the highest clock, with no reason given, somebody has set the clocks
CLOCK_CUT = 0.85


def _finding(
    id_: str,
    title: str,
    why: str,
    evidence: tuple[Observation, ...],
    fix: tuple[Remedy, ...],
    severity: Literal["warning", "info"] = "warning",
) -> Finding:
    return Finding(id=id_, severity=severity, confidence=0.9, title=title, why=why, evidence=evidence, fix=fix)


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
        f"the PCIe link runs at Gen{generation:.0f} x{width:.0f} instead of Gen{best_generation} x{best_width}",
        "The link was watched during the copies, so this is no power saving at rest. Usual reasons are a riser, dirt, "
        "a card that is not fully seated, a slot that shares its lanes, or a BIOS setting.",
        (_seen("gpu.link", f"Gen{generation:.0f} x{width:.0f} under load"),),
        (
            Remedy(
                say="compare LnkSta with LnkCap of the card and of the port above it", run="sudo lspci -vv -d 10de:"
            ),
            Remedy(say="seat the card again, take out the riser, set the slot's lanes and generation in the BIOS"),
        ),
    )


def wrong_node(_row: Measurement, situation: Situation) -> Finding | None:
    """The process was kept from the CPUs next to the GPU, so every copy crosses to another socket."""
    gpu, host = situation.gpu, situation.machine.host
    if gpu is None or isinstance(gpu.numa_node, Absent) or isinstance(host.numa_nodes, Absent) or host.numa_nodes < 2:
        return None
    if gpu.numa_node >= 0 and situation.environment.get("near_cpus", 0):
        return None
    reason = "the BIOS does not tell the GPU's node" if gpu.numa_node < 0 else "no CPU of the GPU's node may be used"
    return _finding(
        "wrong_numa_node",
        f"the copies were not made from the GPU's NUMA node: {reason}",
        "Memory of another socket reaches the GPU over the link between the sockets, which is slower and shared.",
        (Observation("gpu.numa_node", str(gpu.numa_node), "machine"),),
        (
            Remedy(say="run on the GPU's node", run=f"numactl --cpunodebind={max(0, gpu.numa_node)} --localalloc ..."),
            Remedy(say="which CPUs are near which GPU", run="nvidia-smi topo -m"),
        ),
    )


def throttled_by_heat(row: Measurement, _situation: Situation) -> Finding | None:
    """The card cut its clocks because it was hot."""
    return _throttled(
        row,
        THERMAL,
        "thermal_throttle",
        f"the GPU slowed itself down because of heat ({row.context.get('temperature_c_max', 0):.0f} °C)",
        "The clocks were cut while it was measured; training will see the same clocks.",
        Remedy(say="look at fans, dust, airflow and the temperature of the room", run="nvidia-smi -q -d TEMPERATURE"),
    )


def throttled_by_power(row: Measurement, situation: Situation) -> Finding | None:
    """The card cut its clocks at its power limit; normal for long products, unless the limit was lowered."""
    gpu = situation.gpu
    limit = None if gpu is None or isinstance(gpu.power_limit_w, Absent) else gpu.power_limit_w
    default = None if gpu is None or isinstance(gpu.power_limit_default_w, Absent) else gpu.power_limit_default_w
    lowered = limit is not None and default is not None and limit < default * 0.99
    text = f" (limit {limit:.0f} W, default {default:.0f} W)" if lowered else ""
    remedy = (
        Remedy(say="raise the limit again", run=f"sudo nvidia-smi -i {gpu.index} -pl {default:.0f}", needs_root=True)
        if gpu is not None and lowered
        else Remedy(say="nothing is broken when the limit is the default; see the limits", run="nvidia-smi -q -d POWER")
    )
    found = _throttled(
        row,
        POWER,
        "power_throttle",
        f"the GPU ran into its power limit{text}",
        "The clocks were cut while it was measured; with random numbers long products always come near the limit.",
        remedy,
    )
    braked = row.context.get("throttled_hw_power_brake_share", 0.0) >= OFTEN
    # a card at the limit that it came with does what it can: a T4 or L4 runs so whenever it multiplies for long
    return found if found is None or lowered or braked else replace(found, severity="info")


def _throttled(
    row: Measurement, reasons: tuple[str, ...], id_: str, title: str, why: str, fix: Remedy
) -> Finding | None:
    shares = {reason: row.context.get(f"throttled_{reason}_share", 0.0) for reason in reasons}
    seen = {reason: share for reason, share in shares.items() if share >= OFTEN}
    if not seen:
        return None
    evidence = [_seen(f"throttle.{reason}", f"in {share:.0%} of the looks") for reason, share in seen.items()]
    clock = row.context.get("sm_clock_mhz")
    if clock is not None:
        evidence.append(_seen("gpu.sm_clock_mhz", f"{clock:.0f}"))
    return _finding(id_, title, why, tuple(evidence), (fix,))


def clocks_limited(row: Measurement, situation: Situation) -> Finding | None:
    """The clock stayed low without heat or power: application or locked clocks."""
    gpu, clock = situation.gpu, row.context.get("sm_clock_mhz")
    if gpu is None or clock is None or isinstance(gpu.sm_clock_max_mhz, Absent):
        return None
    if any(row.context.get(f"throttled_{reason}_share", 0.0) >= OFTEN for reason in (*THERMAL, *POWER)):
        return None
    if clock >= CLOCK_CUT * gpu.sm_clock_max_mhz:
        return None
    return _finding(
        "clocks_limited",
        f"the GPU ran at {clock:.0f} MHz, its highest clock is {gpu.sm_clock_max_mhz} MHz",
        "Neither heat nor power was given as the reason, so the clocks are probably set by hand or by a policy.",
        (_seen("gpu.sm_clock_mhz", f"{clock:.0f}"),),
        (
            Remedy(
                say="give the clocks back to the driver",
                run=f"sudo nvidia-smi -i {gpu.index} -rgc && sudo nvidia-smi -i {gpu.index} -rac",
                needs_root=True,
            ),
        ),
    )


def other_process(row: Measurement, _situation: Situation) -> Finding | None:
    """Another process used the card meanwhile."""
    count = row.other_gpu_processes
    if not count:
        return None
    return _finding(
        "gpu_shared",
        f"{count} other process{'es' if count > 1 else ''} used the GPU during the run",
        "Figures of a shared card say little about the card.",
        (_seen("gpu.processes", f"{count} besides gpudoc"),),
        (Remedy(say="see who it is, and measure again when it has ended", run="nvidia-smi"),),
    )


def virtual_machine(_row: Measurement, situation: Situation) -> Finding | None:
    """A GPU that is passed through or shared by a hypervisor."""
    gpu = situation.gpu
    kind = None if gpu is None or isinstance(gpu.virtualization, Absent) else gpu.virtualization
    if kind not in ("passthrough", "vgpu"):
        return None
    return _finding(
        "virtualised_gpu",
        f"the GPU belongs to a virtual machine ({kind})",
        "Copies pass the hypervisor's IOMMU, and a virtual GPU shares its card with others.",
        (Observation("gpu.virtualization", kind, "machine"),),
        (Remedy(say="ask for huge pages and a pinned CPU topology of the guest, or measure on the host"),),
    )


def cpu_quota(row: Measurement, situation: Situation) -> Finding | None:
    """The container's CPU quota is below the threads that were used."""
    quota = situation.machine.container.cpu_quota_cores
    threads = float(row.parameters.get("threads", 1))
    if isinstance(quota, Absent) or quota >= threads:
        return None
    return _finding(
        "cgroup_cpu_limit",
        f"the container may use {quota:g} CPUs, {threads:g} threads were run",
        "The kernel stops all threads of a container that has used up its share of a period.",
        (Observation("container.cpu_quota_cores", f"{quota:g}", "machine"),),
        (Remedy(say="raise the quota, for example", run=f"docker run --cpus {threads:g} ..."),),
    )


def cpu_stolen(row: Measurement, _situation: Situation) -> Finding | None:
    """The hypervisor gave the CPU to others."""
    share = row.context.get("stolen_share", 0.0)
    if share < 0.05:
        return None
    return _finding(
        "cpu_stolen",
        f"the hypervisor took {share:.0%} of the CPU time away",
        "Other virtual machines on the same host ran instead; no setting in this machine changes that.",
        (_seen("cpu.steal", f"{share:.0%}"),),
        (Remedy(say="measure at another time, or rent CPUs that are not shared", run="vmstat 1"),),
    )


def cpu_busy(row: Measurement, _situation: Situation) -> Finding | None:
    """Other processes of this machine used the CPUs."""
    others = row.context.get("other_cpus_max", 0.0)
    if others < 0.25:
        return None
    return _finding(
        "cpu_busy",
        f"other processes kept {others:.1f} CPUs busy",
        "They took the CPU's time and its caches while it was measured.",
        (_seen("cpu.others", f"{others:.1f} CPUs"),),
        (Remedy(say="see which, and measure again without them", run="top -o %CPU"),),
    )


LINK_CAUSES = (link_degraded, wrong_node, other_process, virtual_machine)
LOAD_CAUSES = (throttled_by_heat, throttled_by_power, clocks_limited, other_process, virtual_machine)
CPU_CAUSES = (cpu_quota, cpu_stolen, cpu_busy)


def slot_limited(situation: Situation) -> Finding | None:
    """The GPU could do more than its slot: its own highest generation is above that of GPU and system together."""
    gpu = situation.gpu
    if gpu is None:
        return None
    own, both = gpu.link.generation_gpu_max, gpu.link.generation_max
    if isinstance(own, Absent) or isinstance(both, Absent) or own <= both:
        return None
    return _finding(
        "pcie_slot_limited",
        f"the slot allows PCIe Gen{both}, the GPU could do Gen{own}",
        "Copies between host and GPU are bounded by the slot; the ceilings here are the slot's.",
        (Observation("gpu.link.generation_gpu_max", str(own), "machine"),),
        (
            Remedy(
                say="another slot or the BIOS may give the higher generation; work on the GPU itself is not affected"
            ),
        ),
        severity="info",
    )


def half_rate(situation: Situation) -> Finding | None:
    """A card that adds up 16-bit products in 32 bits at half its rate, as torch asks it to."""
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
        "this card adds up 16-bit products in 32 bits at half its rate",
        "GeForce cards do; it is no fault, and the ceilings here count it. Advertised figures are often the double, "
        "with 16-bit sums or sparsity.",
        (Observation("gpu.brand", str(brand), "machine"),),
        (
            Remedy(
                say="for inference that can bear 16-bit sums",
                run="torch.backends.cuda.matmul.allow_fp16_accumulation = True",
            ),
        ),
        severity="info",
    )


def pageable_copies(situation: Situation) -> Finding | None:
    """How much page-locked memory gains on this machine, when it does."""
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
        f"copies from ordinary memory reach {pageable / pinned:.0%} of those from page-locked memory",
        "Ordinary memory is copied twice, through a staging buffer that the CPU fills.",
        (_seen("bench.h2d", f"{pageable:.3g} GB/s pageable, {pinned:.3g} GB/s pinned"),),
        (Remedy(say="let the loader lock its batches", run="DataLoader(..., pin_memory=True)"),),
        severity="info",
    )


def spinning_threads(situation: Situation) -> Finding | None:
    """Threads of the CPU's rows that spin for CPUs on which others compute."""
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
