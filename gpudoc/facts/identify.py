"""Which GPU a number means: CUDA numbers its visible GPUs, the fastest first; NVML numbers all GPUs by address."""

from __future__ import annotations

from gpudoc.facts.model import Absent, CudaDevice, Gpu, Machine, PciDevice


def gpu_at(ordinal: int, machine: Machine) -> Gpu | None:
    """The facts of CUDA device `ordinal` (torch's 'cuda:N'); None if they are absent or the number is ambiguous."""
    gpus = () if isinstance(machine.gpus, Absent) else machine.gpus
    devices = machine.driver.cuda_devices
    if not isinstance(devices, Absent):
        addresses = [device.pci_address for device in devices if device.ordinal == ordinal]
        return with_address(addresses[0], gpus) if addresses else None
    return _by_mask(ordinal, machine, gpus)


def cuda_device_at(ordinal: int, machine: Machine) -> CudaDevice | None:
    """libcuda's facts about device `ordinal`; None if it gave none."""
    devices = machine.driver.cuda_devices
    return None if isinstance(devices, Absent) else next((one for one in devices if one.ordinal == ordinal), None)


def pci_of(gpu: Gpu, machine: Machine) -> PciDevice | None:
    """The GPU's entry on the PCI bus; None if it is not found there."""
    address = short_address(gpu.pci_address)
    devices = () if isinstance(machine.pci, Absent) else machine.pci
    return next((one for one in devices if address and short_address(one.address) == address), None)


def with_address(address: object, gpus: tuple[Gpu, ...]) -> Gpu | None:
    """The GPU at that PCI address; None if there is none, or if the address is absent."""
    short = short_address(address)
    return next((gpu for gpu in gpus if short and short_address(gpu.pci_address) == short), None)


def short_address(address: object) -> str:
    """The address in a comparable form, '' if absent: NVML writes eight digits of the domain, the kernel four."""
    if not isinstance(address, str):
        return ""
    domain, _, rest = address.lower().rpartition(":")[0].rpartition(":")
    return f"{domain.lstrip('0')}:{rest}:{address.lower().rpartition(':')[2]}"


def _by_mask(ordinal: int, machine: Machine, gpus: tuple[Gpu, ...]) -> Gpu | None:
    """The GPU according to CUDA_VISIBLE_DEVICES, for when libcuda gave no answer."""
    environment = {} if isinstance(machine.environment, Absent) else machine.environment
    mask = environment.get("CUDA_VISIBLE_DEVICES")
    asked = [str(ordinal)] if mask is None else [one.strip() for one in mask.split(",")][ordinal : ordinal + 1]
    if mask is None or not asked or asked[0].isdecimal():
        # CUDA puts the fastest of different cards first, and we do not know which one that is
        alike = len({str(gpu.name) for gpu in gpus}) == 1
        if not alike and environment.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
            return None
    return next((gpu for gpu in gpus if asked and asked[0] and _is_named(gpu, asked[0])), None)


def _is_named(gpu: Gpu, name: str) -> bool:
    return str(gpu.index) == name or (isinstance(gpu.uuid, str) and gpu.uuid.startswith(name))
