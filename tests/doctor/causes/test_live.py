from dataclasses import replace

import pytest

from gpudoc.doctor.causes import live
from gpudoc.doctor.model import Evidence, Expectation
from gpudoc.facts.model import Absent, Machine, PciDevice
from tests.machines.built import changed, gpu, machine


def amd(code: int) -> PciDevice:
    return PciDevice(address="0000:0a:00.0", vendor_id=live.AMD, device_id=0x164E, class_code=code, driver="amdgpu")


def test_a_ryzens_graphics_is_no_gpu_for_computing_unless_torch_is_built_for_it():
    desktop = Machine(pci=(amd(0x030000),))
    assert live.compute_gpus_amd(desktop) == ()
    assert len(live.compute_gpus_amd(changed(desktop, "torch.accelerator", "rocm"))) == 1
    assert len(live.compute_gpus_amd(Machine(pci=(amd(0x120000),)))) == 1


def test_classes_are_read_in_both_lengths():
    assert len(live.pci_gpus(Machine(pci=(amd(0x0300), amd(0x030000), amd(0x060400))), live.AMD)) == 2


@pytest.mark.parametrize(
    ("expectation", "asked", "answer"),
    [
        (Expectation(), Absent("no environment variable of a scheduler names GPUs"), False),
        (Expectation(num_gpus=2), Absent("x"), True),
        (Expectation(device="cuda:1"), Absent("x"), True),
        (Expectation(), "4", True),
        (Expectation(), "0", False),
    ],
)
def test_a_gpu_is_asked_for_by_option_or_scheduler(expectation, asked, answer):
    facts = changed(machine(), "container.gpus_asked", asked)
    assert live.gpu_was_asked(Evidence(source="machine", machine=facts, expectation=expectation)) is answer


def test_facts_are_quoted_as_people_write_them():
    assert live.observe("x", (9, 0), "y").value == "9.0"
    assert live.observe("x", ("a", "b", "c"), "y").value == "a, b, c"
    assert live.observe("x", Absent("no permission"), "y").value == "no permission"


def test_nodes_and_names():
    facts = machine(gpu(0), gpu(1))
    assert [node.path for node in live.gpu_nodes(facts)] == ["/dev/nvidia0", "/dev/nvidia1"]
    assert live.name_of(gpu(1)) == "GPU 1 (NVIDIA H100 80GB HBM3)"
    assert live.name_of(replace(gpu(1), name=Absent("x"))) == "GPU 1"
