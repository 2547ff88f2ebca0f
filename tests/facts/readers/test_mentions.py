from __future__ import annotations

import pytest

from gpudoc.facts.model import NOT_READ
from gpudoc.facts.readers import read


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (">>> torch.__version__\n'1.13.1+cpu'", "1.13.1+cpu"),
        ("torch 2.0.1, cuda 11.8", "2.0.1"),
        ("Ultralytics YOLOv8 Python-3.10 torch-2.1.0+cu118 CUDA:0", "2.1.0+cu118"),
        ("PyTorch version 2.4.0", "2.4.0"),
    ],
)
def test_the_version_of_torch_is_found_in_prose_and_sessions(text, version):
    assert read(text).machine.torch.version == version


def test_a_requirement_is_no_installed_version():
    assert read("this package requires torch>=2.4.0").machine.torch.version == NOT_READ


def test_the_answer_of_a_session_belongs_to_its_call():
    assert read(">>> import torch\n>>> torch.cuda.is_available()\nFalse").machine.torch.is_available is False
    assert read(">>> torch.version.cuda\n'12.1'").machine.torch.cuda_version == (12, 1)
    assert read(">>> torch.version.cuda\n>>> print(3)\n3").machine.torch.cuda_version == NOT_READ


def test_capabilities_and_architectures_of_torchs_own_warning():
    text = (
        "NVIDIA GeForce RTX 5070 with CUDA capability sm_120 is not compatible with the current PyTorch installation.\n"
        "The current PyTorch install supports CUDA capabilities sm_50 sm_60 sm_90.\n"
    )
    machine = read(text).machine
    assert machine.gpus[0].capability == (12, 0)
    assert machine.torch.arch_list == ("sm_50", "sm_60", "sm_90")


def test_variables_are_read_from_shells_dockerfiles_and_programs():
    text = (
        "export CUDA_VISIBLE_DEVICES=3\nENV NVIDIA_DRIVER_CAPABILITIES=utility\nos.environ['NCCL_DEBUG'] = 'INFO'\n"
        "LD_LIBRARY_PATH=/usr/local/cuda/lib64 python train.py"
    )
    environment = read(text).machine.environment
    assert environment["CUDA_VISIBLE_DEVICES"] == "3"
    assert environment["NVIDIA_DRIVER_CAPABILITIES"] == "utility"
    assert environment["NCCL_DEBUG"] == "INFO"
    assert environment["LD_LIBRARY_PATH"] == "/usr/local/cuda/lib64"


def test_what_a_driver_needs_is_not_what_it_is():
    assert read("CUDA 12 needs driver 525 or newer").machine.driver.module_version == NOT_READ
    assert read("RTX 3090 with driver 535.54, Linux").machine.driver.module_version == "535.54"


def test_conda_s_toolkit_tells_what_torch_is_built_for():
    assert read("cudatoolkit 11.3 (conda environment)").machine.torch.cuda_version == (11, 3)


@pytest.mark.parametrize(
    ("text", "mask"),
    [
        ('environment:\n  CUDA_VISIBLE_DEVICES: "1,2"\n', "1,2"),
        ('{"env": {"CUDA_VISIBLE_DEVICES": "", "A": 1}}', ""),
        ("- CUDA_VISIBLE_DEVICES: GPU-0f1e2d3c\n", "GPU-0f1e2d3c"),
        ("HIP_VISIBLE_DEVICES: none\n", None),
    ],
)
def test_a_mask_is_read_from_compose_files_and_json(text, mask):
    assert read(text).machine.environment.get("CUDA_VISIBLE_DEVICES") == mask


def test_a_text_that_denies_wsl_is_not_of_wsl():
    said = "dxcore initialization failed, continuing assuming a non-WSL environment\nDriver Version: 550.54"
    assert read(said).machine.host.wsl is not True
    assert read("Linux 5.15.90.1-microsoft-standard-WSL2").machine.host.wsl is True
