"""CUDA's numbers and NVML's, the bus and the facts: the PCI address says which of them are one card."""

from dataclasses import replace

import pytest

from gpudoc.facts.identify import gpu_at, pci_of, short_address, with_address
from gpudoc.facts.model import Absent, CudaDevice, Driver, Gpu, Machine, PciDevice
from tests.fakes.machine import H100, T4, FakeMachine

SLOW = Gpu(index=0, name="Tesla T4", uuid="GPU-aa11", pci_address="0000:17:00.0")
FAST = Gpu(index=1, name="NVIDIA H100", uuid="GPU-bb22", pci_address="0000:27:00.0")


def machine(*devices, gpus=(SLOW, FAST), **environment):
    found = tuple(CudaDevice(ordinal=place, pci_address=address) for place, address in enumerate(devices))
    return Machine(gpus=gpus, driver=Driver(cuda_devices=found) if devices else Driver(), environment=environment)


def test_cuda_puts_the_fastest_first_and_the_address_tells():
    mixed = machine(FAST.pci_address, SLOW.pci_address)
    assert [gpu_at(0, mixed), gpu_at(1, mixed), gpu_at(2, mixed)] == [FAST, SLOW, None]


def test_collected_facts_name_the_card_that_cuda_numbers(tmp_path):
    fake = FakeMachine(tmp_path / "m")
    fake.driver()
    fake.gpus(T4)
    fake.gpus(H100)
    for ordinal, index in ((0, 1), (1, 0)):
        fake.answer("cuDeviceGetPCIBusId", fake.address(index).upper(), ordinal)
    fake.torch()
    assert gpu_at(0, fake.collect(quick=True)).name == H100.name


@pytest.mark.parametrize(
    ("mask", "ordinal", "found"),
    [("1", 0, 1), ("1,0", 1, 0), ("GPU-bb", 0, 1), ("0", 1, None), ("7", 0, None), ("", 0, None), ("", 1, None)],
)
def test_where_libcuda_told_nothing_the_mask_renumbers(mask, ordinal, found):
    alike = (SLOW, replace(FAST, name=SLOW.name))
    gpu = gpu_at(ordinal, machine(gpus=alike, CUDA_VISIBLE_DEVICES=mask))
    assert (gpu.index if gpu else None) == found


def test_among_unlike_cards_a_number_alone_is_ambiguous():
    assert gpu_at(0, machine()) is None
    assert gpu_at(0, machine(CUDA_VISIBLE_DEVICES="1")) is None
    assert gpu_at(0, machine(CUDA_VISIBLE_DEVICES="GPU-bb22")) is FAST
    assert gpu_at(0, machine(CUDA_DEVICE_ORDER="PCI_BUS_ID")) is SLOW
    assert gpu_at(0, Machine(gpus=Absent("no driver"))) is None


def test_a_long_domain_is_the_same_address_and_an_absent_one_is_none():
    assert with_address("00000000:27:00.0", (SLOW, FAST)) is FAST
    assert with_address(Absent("old torch"), (SLOW, replace(FAST, pci_address=Absent("hidden")))) is None
    device = PciDevice(address="0000:27:00.0", vendor_id=0x10DE, device_id=0x2330, class_code=0x030200)
    on_bus = replace(machine(), pci=(device,))
    assert pci_of(FAST, on_bus) is device
    assert pci_of(replace(FAST, pci_address=Absent("hidden")), on_bus) is None


def test_a_domain_of_five_digits_is_no_other_one():
    """As a VMD has it."""
    assert short_address("10000:01:00.0") == short_address("00010000:01:00.0")
    assert short_address("10000:01:00.0") != short_address("0000:01:00.0")
    assert short_address("01:00.0") == short_address("0000:01:00.0")
