"""The PCI devices that compute or display, the link of each, and whether it still answers."""

from __future__ import annotations

from pathlib import Path

from gpudoc.facts.container import ROOT
from gpudoc.facts.files import exists, link_name, list_names, read_bytes, read_int, read_text
from gpudoc.facts.model import Absent, Fact, PciDevice
from gpudoc.patterns import MULTILINE, Pattern

_DEVICES = "sys/bus/pci/devices"
NVIDIA, AMD = 0x10DE, 0x1002
_DISPLAY, _ACCELERATOR = 0x03, 0x12
_NVIDIA_BRIDGE = 0x0680
NO_DRIVER = Absent("no driver bound")
EXCLUDED = Absent("the driver's options exclude it")


def collect(root: Path = ROOT) -> Fact[tuple[PciDevice, ...]]:
    """Display controllers, accelerators and NVSwitches, in bus order (`lspci -nnk`); absent if there is no PCI bus."""
    names = list_names(root, _DEVICES)
    if isinstance(names, Absent):
        return names
    devices = (_read_device(root, name) for name in names)
    return tuple(device for device in devices if device is not None)


def _read_device(root: Path, name: str) -> PciDevice | None:
    folder = f"{_DEVICES}/{name}"
    vendor, code = read_int(root, f"{folder}/vendor"), read_int(root, f"{folder}/class")
    if isinstance(vendor, Absent) or isinstance(code, Absent):
        return None
    switch = vendor == NVIDIA and code >> 8 == _NVIDIA_BRIDGE
    if code >> 16 not in (_DISPLAY, _ACCELERATOR) and not switch:
        return None
    if exists(root, f"{folder}/physfn"):
        return None  # a virtual function: a slice of a GPU for a virtual machine
    device = read_int(root, f"{folder}/device")
    port = f"{folder}/.."
    return PciDevice(
        address=name,
        vendor_id=vendor,
        device_id=0xFFFF if isinstance(device, Absent) else device,
        class_code=code,
        driver=_driver(root, folder),
        link_speed_gt_s=_speed(read_text(root, f"{folder}/current_link_speed")),
        link_speed_max_gt_s=_speed(read_text(root, f"{folder}/max_link_speed")),
        link_width=_width(read_int(root, f"{folder}/current_link_width")),
        link_width_max=_width(read_int(root, f"{folder}/max_link_width")),
        port_speed_max_gt_s=_speed(read_text(_resolve(root, port), "max_link_speed")),
        port_width_max=_width(read_int(_resolve(root, port), "max_link_width")),
        numa_node=read_int(root, f"{folder}/numa_node"),
        answers=_answers(root, folder),
        minor=_minor(root, name),
    )


def _minor(root: Path, name: str) -> Fact[int]:
    """The N of /dev/nvidiaN; known only for GPUs that the driver uses, and in a container for those passed in."""
    text = read_text(root, f"proc/driver/nvidia/gpus/{name}/information")
    if isinstance(text, Absent):
        return text
    if Pattern(r"^GPU Excluded:\s*Yes", MULTILINE).search(text):
        return EXCLUDED
    match = Pattern(r"^Device Minor:\s*(\d+)", MULTILINE).search(text)
    return int(match[1]) if match else Absent("the driver assigns it no number")


def _resolve(root: Path, port: str) -> Path:
    # the entry under bus/pci/devices is a link into the tree of ports; its parent there is the upstream port
    return (root / port[: -len("/..")]).resolve().parent


def _driver(root: Path, folder: str) -> Fact[str]:
    name = link_name(root, f"{folder}/driver")
    return NO_DRIVER if isinstance(name, Absent) and name.reason.startswith("no such file") else name


def _speed(text: Fact[str]) -> Fact[float]:
    if isinstance(text, Absent):
        return text
    first = text.split(" ", 1)[0]
    return float(first) if first.replace(".", "", 1).isdecimal() else Absent("the link's speed is not known")


def _width(width: Fact[int]) -> Fact[int]:
    if isinstance(width, Absent) or 0 < width <= 32:
        return width
    return Absent("the link's width is not known")


def _answers(root: Path, folder: str) -> Fact[bool]:
    """Whether the device answers; False if the configuration space reads as all ones, as for a lost device."""
    head = read_bytes(root, f"{folder}/config", limit=4)
    if isinstance(head, Absent):
        return head
    return head != b"\xff\xff\xff\xff" if len(head) == 4 else Absent("configuration space not readable")


def nearest_network_device(pci_address: str, root: Path = ROOT) -> Fact[str]:
    """The RDMA device that shares the longest path from the root complex with the card (`nvidia-smi topo -m`).

    The first one if several are equally near; absent if the machine has none.
    """
    names = list_names(root, "sys/class/infiniband")
    if isinstance(names, Absent) or not names:
        return Absent("no RDMA device")
    card = (root / _DEVICES / pci_address.lower()[-12:]).resolve().parts

    def shared(name: str) -> int:
        way = (root / "sys/class/infiniband" / name / "device").resolve().parts
        same = 0
        while same < min(len(card), len(way)) and card[same] == way[same]:
            same += 1
        return same

    return max(names, key=shared)
