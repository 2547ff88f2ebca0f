from __future__ import annotations

import pytest

from gpudoc.knowledge.nvlinks import find_nvlinks


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
