"""Where a GPU hangs: the slot that it stands in, and the memory node."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoc.doctor.cards import cards_at
from gpudoc.doctor.causes.live import compute_gpus_amd, observe, pci_gpus
from gpudoc.doctor.model import Evidence, Finder, Finding, Remedy, Severity, Skip
from gpudoc.facts.model import Absent, Machine, PciDevice
from gpudoc.facts.topology import NVIDIA

# half the lanes or one generation less costs only programs that copy much; a quarter costs each that trains on several
_LITTLE_OF_THE_LINK = 0.5


def _gpus(machine: Machine) -> tuple[PciDevice, ...]:
    return (*pci_gpus(machine, NVIDIA), *compute_gpus_amd(machine))


def find_slot(evidence: Evidence) -> Iterator[Finding | Skip]:
    """A GPU whose slot has fewer lanes, or slower ones, than the GPU alone could use."""
    machine = evidence.machine
    if not isinstance(machine.host.cpu_flags, Absent) and "hypervisor" in machine.host.cpu_flags:
        yield Skip("a virtual machine makes up its slots")
        return
    for device in _gpus(machine):
        lanes, slot_lanes = device.link_width_max, device.port_width_max
        speed, slot_speed = device.link_speed_max_gt_s, device.port_speed_max_gt_s
        if (
            isinstance(lanes, Absent)
            or isinstance(slot_lanes, Absent)
            or isinstance(speed, Absent)
            or isinstance(slot_speed, Absent)
        ):
            reason = next(f.reason for f in (lanes, slot_lanes, speed, slot_speed) if isinstance(f, Absent))
            yield Skip(f"{device.address}: {reason}")
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
            cards = cards_at((device.address,), machine)
            yield Finding(id="pcie_slot_limits_gpu", severity=severity, confidence=0.85, cards=cards, evidence=seen)


def find_node(evidence: Evidence) -> Iterator[Finding | Skip]:
    """A process that may only run on CPUs of another memory node than every GPU hangs on.

    Bound to the node of one of several GPUs it may well be that GPU's process, and a GPU of node -1 hangs on none.
    """
    machine = evidence.machine
    allowed, num_nodes = machine.host.numa_nodes_usable, machine.host.numa_nodes
    if isinstance(allowed, Absent) or isinstance(num_nodes, Absent) or num_nodes < 2 or not allowed:
        return
    devices = [(device.address, device.numa_node) for device in _gpus(machine)]
    near = [node for _, node in devices if not isinstance(node, Absent)]
    for address, node in devices:
        if isinstance(node, Absent):
            yield Skip(f"{address}: {node.reason}")
            return
    if not near or min(near) < 0:
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
    Finder(id="process_far_from_gpu", find=find_node, needs=("pci", "host.numa_nodes", "host.numa_nodes_usable")),
)
