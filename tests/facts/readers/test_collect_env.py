from __future__ import annotations

import pytest

from gpudoc.facts.model import NOT_READ
from gpudoc.facts.readers import read

WHOLE = """Collecting environment information...
PyTorch version: 2.3.1+cu121
Is debug build: False
CUDA used to build PyTorch: 12.1
ROCM used to build PyTorch: N/A

OS: Ubuntu 22.04.4 LTS (x86_64)
Libc version: glibc-2.35

Python version: 3.10.12 (main, Nov 20 2023, 15:14:05) [GCC 11.4.0] (64-bit runtime)
Python platform: Linux-6.5.0-1018-aws-x86_64-with-glibc2.35
Is CUDA available: True
CUDA runtime version: 11.5.119
GPU models and configuration:
GPU 0: NVIDIA A10G
GPU 1: NVIDIA A10G

Nvidia driver version: 535.183.01
cuDNN version: Could not collect

Versions of relevant libraries:
[pip3] numpy==1.26.4
[pip3] torch==2.3.1+cu121
[conda] Could not collect
"""


def test_every_field_becomes_a_fact_with_its_line():
    reading = read(WHOLE)
    machine = reading.machine
    assert machine.torch.version == "2.3.1+cu121"
    assert machine.torch.cuda_version == (12, 1)
    assert machine.torch.is_available is True
    assert machine.driver.module_version == "535.183.01"
    assert [gpu.name for gpu in machine.gpus] == ["NVIDIA A10G", "NVIDIA A10G"]
    assert machine.host.distribution.startswith("Ubuntu 22.04")
    assert machine.host.kernel.startswith("6.5.0-1018-aws")
    assert machine.host.libc_version == "2.35"
    assert machine.python.version == "3.10.12"
    assert machine.torch.cudnn_version == NOT_READ
    assert reading.origins["driver.module_version"] == "line 18"
    assert "collect_env" in reading.recognised


@pytest.mark.parametrize(
    ("line", "built"),
    [("CUDA used to build PyTorch: None", "none"), ("CUDA used to build PyTorch: 10.2", "cuda")],
)
def test_what_torch_is_built_for(line, built):
    assert read("PyTorch version: 1.5.0\n" + line).machine.torch.accelerator == built


def test_the_words_of_torch_1_5_and_of_rocm():
    old = read(
        "PyTorch version: 1.5.0\nCUDA used to build PyTorch: 9.2\nIs CUDA available: Yes\nGPU models and configuration: GPU 0: Tesla P4"
    )
    assert old.machine.torch.is_available is True
    assert old.machine.gpus[0].name == "Tesla P4"
    rocm = read(
        "PyTorch version: 2.5.0+rocm6.2\nROCM used to build PyTorch: 6.2.41133\nGPU models and configuration: AMD Instinct MI210 (gfx90a)"
    )
    assert rocm.machine.torch.accelerator == "rocm"
    assert rocm.machine.gpus[0].name == "AMD Instinct MI210"


def test_a_field_that_could_not_be_collected_is_absent_and_nothing_else():
    machine = read("PyTorch version: N/A\nNvidia driver version: Could not collect\nIs CUDA available: N/A").machine
    assert machine.torch.version == NOT_READ
    assert machine.torch.is_available == NOT_READ
    assert machine.driver.module_version == NOT_READ
