from __future__ import annotations

import pytest

from gpudoc.knowledge.compatibility import (
    archs_of,
    capability_of,
    default_cuda,
    has_index,
    is_triton_release,
    triton_for,
    vision_for,
    wheel_for,
)


@pytest.mark.parametrize(
    ("name", "capability"),
    [
        ("NVIDIA GeForce RTX 4090", (8, 9)),
        ("GeForce RTX 3060 Laptop GPU", (8, 6)),
        ("NVIDIA A100-SXM4-80GB", (8, 0)),
        ("Tesla T4", (7, 5)),
        ("Tesla P100-PCIE-16GB", (6, 0)),
        ("NVIDIA H100 80GB HBM3", (9, 0)),
        ("NVIDIA B200", (10, 0)),
        ("NVIDIA GeForce GTX 1080 Ti", (6, 1)),
        ("Quadro RTX 6000", (7, 5)),
        ("NVIDIA RTX 6000 Ada Generation", (8, 9)),
        ("NVIDIA RTX A6000", (8, 6)),
        ("Tesla K80", (3, 7)),
        ("NVIDIA L40S", (8, 9)),
        ("NVIDIA GeForce RTX 5090", (12, 0)),
        ("A card of the future", None),
        ("AMD Instinct MI300X", None),
    ],
)
def test_a_name_gives_its_capability_or_nothing(name, capability):
    assert capability_of(name) == capability


def test_older_wheels_and_their_code():
    assert "sm_86" in archs_of((11, 3))
    assert "sm_86" not in archs_of((10, 2))
    assert "sm_60" not in archs_of((12, 8))
    assert archs_of((99, 0)) == ()
    assert archs_of(None) == ()


def test_versions_that_belong_together():
    assert vision_for("2.3.1+cu121") == "0.18"
    assert vision_for("1.13.0") == "0.14"
    assert vision_for("0.4") is None
    assert default_cuda("2.5.1") == (12, 4)
    assert default_cuda("9.9") is None


def test_indices_that_never_were():
    assert has_index("118")
    assert not has_index("114")


@pytest.mark.parametrize(
    ("capability", "driver", "cuda"),
    [
        ((8, 0), (11, 4), (11, 8)), ((7, 0), (13, 0), (12, 6)), ((12, 0), (12, 4), (12, 9)), ((12, 0), (11, 8), None),
        ((7, 5), (10, 2), (10, 2)), (None, None, (12, 6)), ((3, 7), (12, 4), (11, 8)), ((2, 1), (12, 4), None),
    ],
)  # fmt: skip
def test_a_wheel_fits_both_gpu_and_driver(capability, driver, cuda):
    wheel = wheel_for(capability, driver)
    assert (wheel.cuda if wheel else None) == cuda


def test_each_torch_has_its_triton():
    assert triton_for("2.6.0+cu124") == "3.2"
    assert triton_for("0.3.0") is None
    assert is_triton_release("3.2")
    assert not is_triton_release("24.5")
