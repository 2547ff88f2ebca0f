from __future__ import annotations

import pytest

from gpudoc.doctor.model import Card, Setting
from gpudoc.doctor.setting import WORDS


@pytest.mark.parametrize(
    ("setting", "install", "remove"),
    [
        (Setting(), "pip install", "pip uninstall -y"),
        (Setting(packager="uv"), "uv pip install", "uv pip uninstall"),
        (Setting(place="colab"), "%pip install", "%pip uninstall -y"),
    ],
)
def test_commands_are_in_the_packager_s_dialect(setting, install, remove):
    assert (WORDS["install"](setting), WORDS["remove"](setting)) == (install, remove)


@pytest.mark.parametrize(
    ("distribution", "kind"), [("Rocky Linux 9.3", "redhat"), ("Arch Linux", "arch"), ("Ubuntu 24.04", "debian")]
)
def test_system_commands_are_in_the_distribution_s_dialect(distribution, kind):
    assert WORDS["distribution"](Setting(distribution=distribution)) == kind
    assert WORDS["distribution"](Setting()) == "debian"


def test_a_setting_that_tells_nothing_names_nothing():
    untold = {word for word, say in WORDS.items() if say(Setting()) == ""}
    assert untold == {
        "accelerator", "address", "card", "cards", "driver_cuda", "generation", "gsp", "in_windows", "indices", "links",
        "mask", "other_gpus", "where",
    }  # fmt: skip


def test_cards_are_numbered_only_where_all_have_a_number():
    both = Setting(cards=(Card(index=1), Card(pci_address="0000:3b:00.0")))
    assert WORDS["indices"](both) == ""
    assert WORDS["cards"](both) == " -i 1,0000:3b:00.0"
    assert WORDS["indices"](Setting(cards=(Card(index=1), Card(index=3)))) == " -i 1,3"


@pytest.mark.parametrize(
    ("setting", "mask"),
    [
        (Setting(num_gpus=4, cards=(Card(index=1),)), "0,2,3"),
        (Setting(num_gpus=4, cards=(Card(index=1),), ill=(Card(index=1), Card(index=3))), "0,2"),
        (Setting(num_gpus=2, cards=(Card(index=0), Card(index=1))), ""),
        (Setting(num_gpus=None, cards=(Card(index=1),)), ""),
        (Setting(num_gpus=8, cards=(Card(pci_address="0000:3b:00.0"),)), ""),
        (Setting(num_gpus=8, cards=(Card(index=1),), ill=(Card(pci_address="0000:3b:00.0"),)), ""),
        (Setting(num_gpus=8), ""),
    ],
)
def test_a_mask_leaves_the_healthy_cards_and_only_those_that_are_known(setting, mask):
    found = WORDS["mask"](setting)
    assert found == (f"CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES={mask}" if mask else "")
