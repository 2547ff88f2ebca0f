"""Check the place of a GPU: its slot, and its memory node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gpudoc.doctor.cards import cards_at
from gpudoc.doctor.causes.live import compute_gpus_amd, observe, pci_gpus
from gpudoc.doctor.causes.per_gpu import read
from gpudoc.doctor.model import Evidence, Finder, Finding, Remedy, Severity, Skip
from gpudoc.facts.model import Absent, Machine, PciDevice
from gpudoc.facts.topology import NVIDIA

# half the link costs only programs that copy much; a quarter costs every training on several GPUs
_LITTLE_OF_THE_LINK = 0.5


def _gpus(machine: Machine) -> tuple[PciDevice, ...]:
    return (*pci_gpus(machine, NVIDIA), *compute_gpus_amd(machine))


class _Slot(NamedTuple):
    link_width_max: int
    port_width_max: int
    link_speed_max_gt_s: float
    port_speed_max_gt_s: float


def find_slot(evidence: Evidence) -> Iterator[Finding | Skip]:
    """A GPU whose slot has fewer or slower lanes than the GPU could use."""
    machine = evidence.machine
    if not isinstance(machine.host.cpu_flags, Absent) and "hypervisor" in machine.host.cpu_flags:
        yield Skip("the slots of a virtual machine are not real")
        return
    for device in _gpus(machine):
        slot = read(device, _Slot, _Slot._fields)
        if isinstance(slot, Absent):
            yield Skip(f"{device.address}: {slot.reason}")
            continue
        lanes, lanes_of_slot, speed, speed_of_slot = slot
        share = min(lanes, lanes_of_slot) * min(speed, speed_of_slot) / (lanes * speed)
        if share < 1:
            severity: Severity = "warning" if share < _LITTLE_OF_THE_LINK else "info"
            gets = f"x{lanes} at {speed:g} GT/s; the slot gives {share:.0%}"
            seen = (
                observe(f"{device.address} slot", f"x{lanes_of_slot} at {speed_of_slot:g} GT/s", "upstream port"),
                observe(f"{device.address} GPU", gets, "PCI device"),
            )
            cards = cards_at((device.address,), machine)
            yield Finding(id="pcie_slot_limits_gpu", severity=severity, confidence=0.85, cards=cards, evidence=seen)


def find_node(evidence: Evidence) -> Iterator[Finding | Skip]:
    """A process that may run only on CPUs of a memory node to which no GPU is attached.

    A process bound to the node of one of several GPUs may be that GPU's process; a GPU of node -1 belongs to no node.
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
