from __future__ import annotations

import pytest

from gpudoc.knowledge.nvlinks import find_nvlinks, is_on_board


@pytest.mark.parametrize(
    ("name", "links", "to_switches"),
    [
        ("NVIDIA A100-SXM4-80GB", 12, True),
        ("NVIDIA H100 80GB HBM3", 18, True),
        ("NVIDIA GB200", 18, True),
        ("Tesla V100-SXM2-32GB", 6, False),
    ],
)
def test_models_are_found_as_nvml_names_them(name, links, to_switches):
    model = find_nvlinks(name)
    assert (model.links, model.to_switches) == (links, to_switches)


@pytest.mark.parametrize(
    "name", ["NVIDIA H100 PCIe", "NVIDIA H100 NVL", "NVIDIA A100-PCIE-40GB", "NVIDIA H200 NVL", "GPU"]
)
def test_cards_for_a_slot_have_no_number(name):
    assert find_nvlinks(name) is None


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("NVIDIA H100 80GB HBM3", True),
        ("NVIDIA A100-SXM4-80GB", True),
        ("Tesla V100-SXM2-16GB", True),
        ("NVIDIA H200", True),
        ("NVIDIA GB200", True),
        ("NVIDIA H200 NVL", False),
        ("NVIDIA H100 PCIe", False),
        ("NVIDIA RTX A6000", False),
        ("NVIDIA GeForce RTX 3090", False),
        ("", None),
        ("NVIDIA X900", None),
    ],
)
def test_a_name_says_board_bridge_or_nothing(name, answer):
    assert is_on_board(name) is answer
