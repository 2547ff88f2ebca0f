from __future__ import annotations

import pytest

from tests.doctor.causes.judge import first, report_of

CASES = [
    ("visible_devices_set_too_late", "os.environ['CUDA_VISIBLE_DEVICES'] = '3' stands below import torch, it consistently uses GPU 0"),
    ("visible_devices_hides_gpu", "export CUDA_VISIBLE_DEVICES=\n>>> torch.cuda.is_available()\nFalse"),
    ("visible_devices_hides_gpu", "$CUDA_VISIBLE_DEVICES is set to -1 in my terminal, torch.cuda.device_count() returns 0, nvidia-smi shows the A40"),
    ("visible_devices_hides_gpu", "CUDA_VISIBLE_DEVICES=-1 python train.py\nRuntimeError: No CUDA GPUs are available"),
    ("visible_devices_hides_gpu", "nvidia-smi -L\nGPU 0: NVIDIA L4 (UUID: GPU-1c)\nCUDA_VISIBLE_DEVICES=1 python t.py\nRuntimeError: No CUDA GPUs are available"),
    ("visible_devices_set_too_late", "import torch\nprint(torch.cuda.device_count())\nos.environ['CUDA_VISIBLE_DEVICES'] = '2'\nstill uses GPU 0"),
    ('visible_devices_hides_gpu', 'services:\n  trainer:\n    environment:\n      CUDA_VISIBLE_DEVICES: "-1"\nRuntimeError: No CUDA GPUs are available'),
]  # fmt: skip


@pytest.mark.parametrize(("cause", "text"), CASES)
def test_who_sees_which_device(cause, text):
    assert first(text) == cause, [(f.id, f.confidence) for f in report_of(text).findings]


def test_a_mask_that_leaves_a_gpu_is_no_fault():
    text = "CUDA_VISIBLE_DEVICES=0 python train.py\nGPU 0: NVIDIA L4 (UUID: GPU-1c)\nGPU 1: NVIDIA L4 (UUID: GPU-2c)\nstep 10 loss 2.1"
    assert report_of(text).verdict == "healthy"


def test_someone_without_a_gpu_who_wants_none_has_no_fault():
    text = "I have no GPU in this notebook and train the tutorial on it\nepoch 1 loss 2.2\nepoch 2 loss 1.9"
    assert report_of(text).verdict == "healthy"


def test_a_gpu_that_is_in_use_is_not_training_on_the_cpu():
    text = "my GPU runs at 40% in training and only one CPU thread is busy, on CPU 95%"
    assert "training_on_cpu" not in [f.id for f in report_of(text).findings if f.severity != "info"]


def test_a_mask_is_not_blamed_for_a_driver_that_does_not_answer():
    text = (
        "$ CUDA_VISIBLE_DEVICES=1 python fit.py\nerror=38 : no CUDA-capable device is detected\n"
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
    )
    assert first(text) == "driver_missing_or_not_loaded"


def test_a_cpu_that_augments_is_not_the_device_of_the_model():
    text = "With augmentation the CPU usage is 100 % and the GPU is bored while I train"
    assert "training_on_cpu" not in [f.id for f in report_of(text).findings if f.severity != "info"]


def test_a_comparison_with_the_cpu_is_not_work_on_the_cpu():
    text = "My small net is faster on the CPU than on the GPU (RTX 3060), is that normal for training?"
    assert "training_on_cpu" not in [f.id for f in report_of(text).findings if f.severity != "info"]
