from __future__ import annotations

import pytest

from gpudoc.doctor.model import Card, Setting
from gpudoc.doctor.remedies import (
    another_card,
    as_root,
    do,
    driver_update,
    install,
    power_limits,
    remove,
    torch_build,
)
from gpudoc.facts.model import Gpu


def runs(steps):
    return " ; ".join(step.run for step in steps)


def test_commands_are_in_the_packager_s_dialect():
    assert install(Setting(packager="uv"), "torch") == "uv pip install torch"
    assert install(Setting(place="colab"), "torch") == "%pip install torch"
    assert remove(Setting(), "torch") == "pip uninstall -y torch"
    assert remove(Setting(packager="uv"), "torch") == "uv pip uninstall torch"


def test_system_commands_are_in_the_distribution_s_dialect():
    assert as_root(Setting(distribution="Rocky Linux 9.3"), "apt x", "dnf x") == "sudo dnf x"
    assert as_root(Setting(distribution="Arch Linux"), "apt x", "dnf x", "pacman x") == "sudo pacman x"
    assert as_root(Setting(), "apt x", "dnf x") == "sudo apt x"


def test_root_is_needed_where_the_command_says_so():
    assert not do("a", "nvidia-smi").needs_root
    assert do("b", "nvidia-smi; sudo dmesg").needs_root


def test_a_wheel_is_offered_that_both_the_driver_and_the_gpu_run():
    old_driver = runs(driver_update(Setting(driver_cuda=(11, 4), capability=(7, 5))))
    assert "torch==2.7.1" in old_driver
    assert "/whl/cu118" in old_driver
    assert "cu12" not in old_driver
    volta = runs(torch_build(Setting(driver_cuda=(13, 0), capability=(7, 0))))
    assert "/whl/cu126" in volta
    blackwell = runs(torch_build(Setting(driver_cuda=(13, 0), capability=(12, 0))))
    assert "/whl/cu13" in blackwell


def test_where_no_wheel_fits_none_is_offered():
    (only,) = torch_build(Setting(driver_cuda=(11, 4), capability=(12, 0)))
    assert only.say.startswith("Update the driver first:")
    assert not only.run
    assert "pip install" not in runs(driver_update(Setting(driver_cuda=(11, 4), capability=(12, 0))))


def test_a_driver_is_updated_where_it_lives():
    assert "host" in driver_update(Setting(place="docker"))[0].say
    assert "Windows" in driver_update(Setting(place="wsl"))[0].say
    assert "administrator" in driver_update(Setting(place="slurm", driver_cuda=(12, 2)))[-1].say


H100 = {"power_limit_default_w": 700.0, "power_limit_min_w": 200.0, "power_limit_max_w": 700.0}
T4 = {"power_limit_default_w": 70.0, "power_limit_min_w": 60.0, "power_limit_max_w": 70.0}


def card(index: int, **limits: float) -> Card:
    return Card.of(Gpu(index=index, **limits))


def test_a_power_limit_is_the_card_s_own_within_its_range():
    both = Setting(cards=(card(0, **T4), card(2, **H100)))
    (step,) = power_limits(both, "Lower it", share=0.8)
    assert step.run.splitlines() == ["sudo nvidia-smi -i 0 -pl 60", "sudo nvidia-smi -i 2 -pl 560"]
    (back,) = power_limits(both, "Restore it", share=1.0)
    assert back.run.splitlines() == ["sudo nvidia-smi -i 0 -pl 70", "sudo nvidia-smi -i 2 -pl 700"]


@pytest.mark.parametrize("cards", [(), (card(0),), (card(0, **T4), card(1)), (Card(pci_address="0000:3b:00.0"),)])
def test_without_a_range_there_is_no_figure(cards):
    (step,) = power_limits(Setting(cards=cards), "Lower it", share=0.8)
    assert "-pl" not in step.run
    assert step.say.startswith("Lower it: ")
    assert "Min and Max Power Limit" in step.say


def test_another_card_is_one_that_is_not_ill():
    two_left = another_card(Setting(cards=(card(1),), num_gpus=3), "Try it elsewhere")
    assert runs(two_left).endswith("CUDA_VISIBLE_DEVICES=0,2 python train.py")
    assert "no other" in another_card(Setting(cards=(card(0),), num_gpus=1), "Try it elsewhere")[0].say
    assert runs(another_card(Setting(), "Try it elsewhere")) == "nvidia-smi -L"
