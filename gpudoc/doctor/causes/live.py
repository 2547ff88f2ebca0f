"""Helpers for the finders of a live machine: which GPUs count, how to quote a fact, whether a GPU was asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gpudoc.doctor.model import Card, Evidence, Observation
from gpudoc.facts.model import Absent, DeviceNode, Gpu, KernelEvent, Machine, PciDevice, known_or
from gpudoc.facts.topology import AMD, NVIDIA

_DISPLAY, _ACCELERATOR = 0x03, 0x12
_NO_DISPLAY_OUTPUT = (0x0302, 0x0380, 0x1200)
# values of NVIDIA_VISIBLE_DEVICES with which a container asks for no GPU
NO_GPU_ASKED = ("", "void", "none")


def refusal(node: DeviceNode) -> str:
    """EPERM if the device cgroup refused to open the file, EACCES if the file's mode did, '' otherwise."""
    code = node.error.split(":", 1)[0]
    return code if code in ("EPERM", "EACCES") else ""


def pci_gpus(machine: Machine, vendor: int) -> tuple[PciDevice, ...]:
    """The devices of one vendor on the bus that display or compute."""
    devices: tuple[PciDevice, ...] = known_or(machine.pci, ())
    return tuple(d for d in devices if d.vendor_id == vendor and _base_class(d) >> 8 in (_DISPLAY, _ACCELERATOR))


def compute_gpus_amd(machine: Machine) -> tuple[PciDevice, ...]:
    """AMD devices that are meant for computing: accelerators, or any device if torch is built for ROCm.

    The bus of many machines that nobody trains on shows the graphics part of a Ryzen processor.
    """
    devices = pci_gpus(machine, AMD)
    if machine.torch.accelerator == "rocm":
        return devices
    return tuple(device for device in devices if _base_class(device) in _NO_DISPLAY_OUTPUT)


def _base_class(device: PciDevice) -> int:
    # sysfs writes class, subclass and interface (0x030000), lspci -n only the first two (0300)
    return device.class_code >> 8 if device.class_code > 0xFFFF else device.class_code


def nvml_gpus(machine: Machine) -> tuple[Gpu, ...]:
    """The GPUs that NVML lists; none if NVML did not answer."""
    return known_or(machine.gpus, ())


def told_gpus(evidence: Evidence) -> tuple[Gpu, ...]:
    """The GPUs that a text states; none for a live machine."""
    return () if evidence.source == "machine" else nvml_gpus(evidence.machine)


def nodes(machine: Machine) -> Mapping[str, DeviceNode]:
    """Device files by path; empty if /dev was not read."""
    known: tuple[DeviceNode, ...] = known_or(machine.nodes, ())
    return {node.path: node for node in known}


def gpu_nodes(machine: Machine) -> tuple[DeviceNode, ...]:
    """The files /dev/nvidia0, /dev/nvidia1 ... that exist."""
    return tuple(n for path, n in nodes(machine).items() if path.removeprefix("/dev/nvidia").isdecimal() and n.exists)


def nvidia_is_there(machine: Machine) -> bool:
    """Whether the bus or /dev shows an NVIDIA GPU; some sandboxes hide the bus and pass the device files."""
    return bool(pci_gpus(machine, NVIDIA) or gpu_nodes(machine))


def variables(machine: Machine) -> Mapping[str, str]:
    """The environment variables that were read; empty if none were."""
    empty: Mapping[str, str] = {}
    return known_or(machine.environment, empty)


def events(machine: Machine, *kinds: str) -> Iterator[KernelEvent]:
    """The kernel's messages of these kinds, oldest first."""
    log: tuple[KernelEvent, ...] = known_or(machine.kernel_log, ())
    return (event for event in log if event.kind in kinds)


def logged(machine: Machine, *kinds: str) -> list[Observation]:
    """The kernel's messages of these kinds, as a finding quotes them."""
    return [observe("kernel log", event.text, "kernel log") for event in events(machine, *kinds)]


def in_container(machine: Machine) -> bool:
    """Whether this is known to be a container."""
    return known_or(machine.container.kind, "none") != "none"


def is_wsl(machine: Machine) -> bool:
    """Whether this is Linux inside Windows, where the GPU comes through /dev/dxg and not over PCI."""
    return known_or(machine.host.wsl, False)


def is_jetson(machine: Machine) -> bool:
    """Whether this is a Jetson, whose GPU is part of the chip."""
    return known_or(machine.host.jetson, False)


def gpu_is_meant(evidence: Evidence) -> bool:
    """Whether a GPU should be here by an option, a scheduler's variable, or a CUDA or ROCm build of torch."""
    return gpu_was_asked(evidence) or evidence.machine.torch.accelerator in ("cuda", "rocm")


def gpu_was_asked(evidence: Evidence) -> bool:
    """Whether an option or a scheduler says that a GPU should be here; a build of torch alone does not."""
    expected = evidence.expectation
    asked = known_or(evidence.machine.container.gpus_asked, "")
    return bool(expected.num_gpus) or expected.device.startswith("cuda") or asked.strip() not in ("", "0", "NoDevFiles")


def observe(fact: str, seen: object, origin: str) -> Observation:
    """One fact as a finding quotes it; for an absent fact, its reason."""
    return Observation(fact, seen.reason if isinstance(seen, Absent) else _text(seen), origin)


def _text(seen: object) -> str:
    if isinstance(seen, tuple) and len(seen) == 2 and all(isinstance(part, int) for part in seen):
        return f"{seen[0]}.{seen[1]}"
    if isinstance(seen, tuple):
        return ", ".join(map(str, seen)) or "none"
    return str(seen)


def seen_of(gpu: Gpu, what: object, origin: str = "NVML") -> Observation:
    """One observation on a GPU, with its index, UUID and PCI address as far as they are known."""
    return observe(Card.of(gpu).label, what, origin)


def name_of(gpu: Gpu) -> str:
    """'GPU 3 (NVIDIA H100 80GB HBM3)'."""
    return f"GPU {gpu.index}" if isinstance(gpu.name, Absent) else f"GPU {gpu.index} ({gpu.name})"
