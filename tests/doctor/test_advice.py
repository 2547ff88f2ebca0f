from __future__ import annotations

import pytest

from gpudoc.doctor.model import Card, Setting
from gpudoc.doctor.registry import CATALOGUE
from gpudoc.facts.model import Gpu


@pytest.mark.parametrize(
    ("capability", "named", "left_out"),
    [
        ((12, 0), "nvidia-open", "cuda-drivers"),
        ((8, 0), "nvidia-open", "cuda-drivers"),
        ((6, 1), "cuda-drivers", "nvidia-open"),
    ],
)
def test_the_kind_of_module_is_the_one_that_the_gpu_needs(capability, named, left_out):
    cause = CATALOGUE["kernel_module_kind_wrong"]
    runs = " ".join(step.run for step in cause.fix(Setting(capability=capability)))
    assert named in runs
    assert left_out not in runs
    both = " ".join(step.run for step in cause.fix(Setting()))
    assert "nvidia-open" in both
    assert "cuda-drivers" in both


def test_a_reboot_that_the_driver_asks_for_is_not_replaced_by_a_reset():
    cause = CATALOGUE["gpu_needs_reset"]
    for action, run in (
        (1, "sudo nvidia-smi --gpu-reset -i 3"),
        (2, "sudo reboot"),
        (4, "sudo nvidia-smi --gpu-reset -i 3"),
    ):
        steps = cause.fix(Setting(cards=(Card.of(Gpu(index=3, recovery_action=action)),)))
        assert next(step.run for step in steps if step.disruptive) == run


def test_the_recovery_that_the_driver_names_is_the_advice_and_a_reboot_comes_before_all():
    cause = CATALOGUE["gpu_needs_reset"]

    def text(*actions):
        cards = tuple(Card.of(Gpu(index=index, recovery_action=action)) for index, action in enumerate(actions))
        return " ".join(f"{step.say} {step.run}" for step in cause.fix(Setting(cards=cards)))

    assert "copy between GPUs" in text(3)
    assert "nvidia-fabricmanager" in text(5)
    assert "--gpu-reset" not in text(1, 2)
    assert "--gpu-reset -i 0,1" in text(1, 4)


@pytest.mark.parametrize(
    ("capability", "module", "switched_off"),
    [
        ((8, 0), False, True),
        ((8, 0), True, False),
        ((8, 0), None, False),
        (None, False, False),
        ((10, 0), False, False),
        ((12, 0), None, False),
    ],
)
def test_gsp_is_switched_off_only_where_the_gpu_can_do_without(capability, module, switched_off):
    steps = CATALOGUE["gsp_firmware_timeout"].fix(Setting(capability=capability, open_module=module))
    assert ("EnableGpuFirmware=0" in " ".join(step.run for step in steps)) is switched_off


def test_a_gpu_is_asked_whether_it_is_drained_only_by_an_address_that_is_known():
    fix = CATALOGUE["gpu_missing_from_driver"].fix
    known = fix(Setting(cards=(Card(pci_address="0000:3b:00.0"),)))
    assert "nvidia-smi drain -p 0000:3b:00.0 -q" in [step.run for step in known]
    assert not any("drain -p" in step.run for step in fix(Setting(cards=(Card(index=1),))))
