from __future__ import annotations

import pytest

from tests.doctor.causes.judge import first, ids, named, report_of

CASES = [
    (
        "gpu_older_than_wheel_archs",
        "Tesla P100, torch 2.8.0+cu128\ncudaErrorNoKernelImageForDevice: no kernel image is available",
    ),
    (
        "gpu_newer_than_wheel_archs",
        "RTX 5090\nRuntimeError: CUDA error: no kernel image is available for execution on the device",
    ),
    (
        "gpu_older_than_wheel_archs",
        "GTX 980\nRuntimeError: CUDA error: no kernel image is available for execution on the device",
    ),
    ("gpu_newer_than_wheel_archs", "ptxas fatal   : Value 'sm_120a' is not defined for option 'gpu-name'"),
    ("gpu_newer_than_wheel_archs", "nvcc fatal   : Unsupported gpu architecture 'compute_89'"),
    (
        "gpu_older_than_wheel_archs",
        "torch._inductor.exc: Triton only supports devices of CUDA Capability >= 7.0, but your device is of CUDA capability 6.1",
    ),
    (
        "gpu_newer_than_wheel_archs",
        "If you want to use the NVIDIA GeForce RTX 4080 GPU with PyTorch, please check the instructions at https://pytorch.org/get-started/locally/",
    ),
    ("gpu_older_than_wheel_archs", "The prebuilt torch 2.8 binaries dropped support for Maxwell, my GTX 970 fails now"),
    ("gpu_older_than_wheel_archs", "Radeon RX 580 with ROCm 6.2\nRuntimeError: HIP error: invalid device function"),
]


@pytest.mark.parametrize(("cause", "text"), CASES)
def test_which_end_of_the_list_the_card_is_beyond(cause, text):
    assert first(text) == cause, [(f.id, f.confidence) for f in report_of(text).findings]


def test_without_a_name_both_ends_are_possible():
    assert set(ids("RuntimeError: CUDA error: no kernel image is available for execution on the device")) >= {
        "gpu_newer_than_wheel_archs"
    }


def test_a_card_that_the_wheel_has_code_for_is_no_fault():
    text = "PyTorch version: 2.6.0+cu126\nIs CUDA available: True\nGPU models and configuration: GPU 0: NVIDIA GeForce RTX 4090"
    assert report_of(text).verdict == "healthy"


def test_a_card_that_the_wheel_fits_points_at_what_was_built_beside_it():
    text = (
        "RTX 4090, torch 2.1.0+cu121\n  out = _ext.sample(x)\n"
        "RuntimeError: CUDA error: no kernel image is available for execution on the device"
    )
    assert first(text) == "extension_missing_arch"


def test_a_wheel_guessed_from_its_version_accuses_nobody_where_nothing_fails():
    assert "gpu_newer_than_wheel_archs" not in ids("pytorch 1.11 on an A100: which batch size do you use?")


def test_a_name_of_a_generation_is_no_lack():
    assert "gpu_newer_than_wheel_archs" not in ids("RTX 5090 (Blackwell, sm_120), driver 595.58, epoch 1 loss 0.3")


def test_the_cuda_named_beside_torch_counts_where_its_own_was_only_concluded():
    text = "%s, CUDA 11.3, Pytorch 1.12.1\nRuntimeError: no kernel image is available for execution on the device"
    assert "gpu_newer_than_wheel_archs" not in named(text % "RTX 3090")
    assert first(text % "RTX 5090") == "gpu_newer_than_wheel_archs"
