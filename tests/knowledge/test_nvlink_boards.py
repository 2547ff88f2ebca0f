from __future__ import annotations

import pytest

from gpudoc.knowledge.nvlink_boards import is_on_board


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
