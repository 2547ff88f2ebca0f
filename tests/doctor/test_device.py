from __future__ import annotations

import pytest

from gpudoc.doctor.device import choose, has_gpu
from gpudoc.errors import GpudocError
from gpudoc.facts.model import CudaDevice, Driver, Gpu, Host, KernelCheck, Machine, PciDevice, TorchBuild

CARD = PciDevice(address="0000:01:00.0", vendor_id=0x10DE, device_id=1, class_code=0x030000)
WORKS = TorchBuild(version="2.6.0+cu126", accelerator="cuda", is_available=True, device_count=2)
GPUS = (Gpu(index=0, name="NVIDIA L4"), Gpu(index=1, name="NVIDIA L4"))
HEALTHY = Machine(pci=(CARD,), gpus=GPUS, torch=WORKS)
BROKEN = Machine(
    pci=(CARD,), torch=TorchBuild(version="2.6.0+cpu", accelerator="cpu", is_available=False, device_count=0)
)


def test_a_working_gpu_is_taken_and_named():
    choice = choose("auto", HEALTHY)
    assert (choice.name, choice.problem) == ("cuda:0", None)
    assert "NVIDIA L4" in choice.why
    assert choose("cuda:1", HEALTHY).required().name == "cuda:1"


def test_the_card_is_named_that_cuda_numbers_so_and_not_nvml():
    cards = (
        Gpu(index=0, name="Tesla T4", pci_address="0000:17:00.0"),
        Gpu(index=1, name="NVIDIA H100", pci_address="0000:27:00.0"),
    )
    first = CudaDevice(ordinal=0, pci_address="0000:27:00.0")
    mixed = Machine(pci=(CARD,), gpus=cards, torch=WORKS, driver=Driver(cuda_devices=(first,)))
    assert choose("auto", mixed).why == "the GPU: NVIDIA H100"


def test_without_a_gpu_the_cpu_is_taken_and_said():
    choice = choose("auto", Machine(pci=(), gpus=()))
    assert (choice.device, choice.problem) == ("cpu", None)
    assert "no GPU" in choice.why


def test_a_gpu_hidden_on_purpose_counts_as_none():
    machine = Machine(
        pci=(CARD,), gpus=GPUS, environment={"CUDA_VISIBLE_DEVICES": ""}, torch=TorchBuild(is_available=False)
    )
    assert choose("auto", machine).required().device == "cpu"


def test_a_gpu_that_cannot_be_used_gives_the_cpu_with_the_cause_and_training_stops():
    choice = choose("auto", BROKEN)
    assert choice.device == "cpu"
    assert choice.problem is not None
    with pytest.raises(GpudocError) as refused:
        choice.required()
    assert refused.value.exit_code == 1
    assert "--device cpu" in refused.value.hint


def test_asking_for_cuda_without_a_usable_one_stops_with_exit_code_1():
    with pytest.raises(GpudocError) as refused:
        choose("cuda", Machine(pci=(), gpus=(), torch=TorchBuild(is_available=False))).required()
    assert refused.value.exit_code == 1
    with pytest.raises(GpudocError, match="sees 2 GPUs"):
        choose("cuda:7", HEALTHY).required()


def test_a_kernel_that_failed_on_the_chosen_card_is_a_problem_only_there():
    torch = TorchBuild(
        accelerator="cuda",
        is_available=True,
        device_count=2,
        kernel_checks=(KernelCheck(device=1, ran=False, error="no kernel image"),),
    )
    machine = Machine(pci=(CARD,), gpus=GPUS, torch=torch)
    assert choose("cuda:0", machine).problem is None
    assert choose("cuda:1", machine).problem is not None


@pytest.mark.parametrize("name", ["gpu", "cpu:1", "cuda:x", ""])
def test_another_name_is_a_mistake_in_usage(name):
    with pytest.raises(GpudocError) as refused:
        choose(name, HEALTHY)
    assert refused.value.exit_code == 2


def test_graphics_of_another_vendor_are_no_gpu_for_a_cuda_torch():
    radeon = PciDevice(address="0", vendor_id=0x1002, device_id=1, class_code=0x0300)
    assert not has_gpu(Machine(pci=(radeon,)))
    assert has_gpu(Machine(pci=(radeon,), torch=TorchBuild(accelerator="rocm")))


@pytest.mark.parametrize("class_code", [0x1200, 0x120000])
def test_an_accelerator_that_displays_nothing_is_a_gpu(class_code):
    instinct = PciDevice(address="0", vendor_id=0x1002, device_id=1, class_code=class_code)
    assert has_gpu(Machine(pci=(instinct,), torch=TorchBuild(accelerator="rocm")))
    assert not has_gpu(Machine(pci=(instinct,)))


def test_cudas_number_of_a_gpu_is_not_nvmls():
    gpus = (
        Gpu(index=0, name="slow", pci_address="0000:10:00.0"),
        Gpu(index=1, name="fast", pci_address="0000:11:00.0"),
    )
    driver = Driver(cuda_devices=(CudaDevice(ordinal=0, pci_address="0000:11:00.0"),))
    assert "fast" in choose("cuda:0", Machine(gpus=gpus, driver=driver, torch=WORKS)).why


def test_a_jetson_has_a_gpu_though_no_bus_shows_it():
    machine = Machine(pci=(), gpus=(), host=Host(jetson=True), torch=TorchBuild(accelerator="cpu", is_available=False))
    assert has_gpu(machine)
    assert choose("auto", machine).problem is not None
