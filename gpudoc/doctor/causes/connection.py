"""How a GPU is connected: the slot it stands in, transfers that its link repeats, and the memory node it hangs on."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoc.doctor.causes.live import NVIDIA, compute_gpus_amd, nvml_gpus, observe, pci_gpus, value
from gpudoc.doctor.model import Evidence, Finder, Finding, Remedy, Severity, Skip
from gpudoc.facts.model import Absent, Machine, PciDevice

# half the lanes or one generation less costs only programs that copy much; a quarter costs each that trains on several
_LITTLE_OF_THE_LINK = 0.5


def _gpus(machine: Machine) -> tuple[PciDevice, ...]:
    return (*pci_gpus(machine, NVIDIA), *compute_gpus_amd(machine))


def find_slot(evidence: Evidence) -> Iterator[Finding | Skip]:
    """A GPU whose slot has fewer lanes, or slower ones, than the GPU alone could use."""
    machine = evidence.machine
    if "hypervisor" in value(machine.host.cpu_flags, ()):
        yield Skip("a virtual machine makes up its slots")
        return
    for device in _gpus(machine):
        lanes, slot_lanes = value(device.link_width_max, 0), value(device.port_width_max, 0)
        speed, slot_speed = value(device.link_speed_max_gt_s, 0.0), value(device.port_speed_max_gt_s, 0.0)
        if not (lanes and slot_lanes and speed and slot_speed):
            continue
        share = min(lanes, slot_lanes) * min(speed, slot_speed) / (lanes * speed)
        if share < 1:
            severity: Severity = "warning" if share < _LITTLE_OF_THE_LINK else "info"
            seen = (
                observe(f"{device.address} slot", f"x{slot_lanes} at {slot_speed:g} GT/s", "upstream port"),
                observe(
                    f"{device.address} GPU", f"x{lanes} at {speed:g} GT/s; the slot gives {share:.0%}", "PCI device"
                ),
            )
            yield Finding(id="pcie_slot_limits_gpu", severity=severity, confidence=0.85, evidence=seen)


def find_replays(evidence: Evidence) -> Iterator[Finding | Skip]:
    """A link that repeats transfers right now; a counter that stands still tells of the past."""
    gpus = nvml_gpus(evidence.machine)
    unread = [gpu.link.replays_added for gpu in gpus if isinstance(gpu.link.replays_added, Absent)]
    if gpus and len(unread) == len(gpus):
        yield Skip(f"gpus.link.replays_added: {unread[0].reason}")
        return
    for gpu in gpus:
        added = value(gpu.link.replays_added, 0)
        if added > 0:
            total = value(gpu.link.replays, 0) + added
            seen = (
                observe(f"GPU {gpu.index} PCIe replays", f"{added} more between two readings, {total} in all", "NVML"),
            )
            yield Finding(id="pcie_link_replays", severity="warning", confidence=0.85, evidence=seen)


def find_node(evidence: Evidence) -> Iterator[Finding | Skip]:
    """A process that may only run on CPUs of another memory node than every GPU hangs on.

    Bound to the node of one of several GPUs it may well be that GPU's process, and a GPU of node -1 hangs on none.
    """
    machine = evidence.machine
    allowed = value(machine.host.numa_nodes_usable, ())
    near = [value(device.numa_node, -1) for device in _gpus(machine)]
    if value(machine.host.numa_nodes, 1) < 2 or not allowed or not near or min(near) < 0:
        return
    if not set(near) & set(allowed):
        seen = (
            observe("CPUs of this process", f"memory node {', '.join(map(str, allowed))}", "/proc/self/status"),
            observe("GPUs", f"memory node {', '.join(map(str, sorted(set(near))))}", "/sys/bus/pci/devices"),
        )
        bind = f"numactl --cpunodebind={near[0]} --membind={near[0]} python train.py"
        fix = (Remedy(say="Bind the process to the GPU's node.", run=bind),)
        yield Finding(id="process_far_from_gpu", severity="warning", confidence=0.85, evidence=seen, fix=fix)


FINDERS: tuple[Finder, ...] = (
    Finder(id="pcie_slot_limits_gpu", find=find_slot, needs=("pci",)),
    Finder(id="pcie_link_replays", find=find_replays, needs=("gpus",)),
    Finder(id="process_far_from_gpu", find=find_node, needs=("pci", "host.numa_nodes_usable")),
)
