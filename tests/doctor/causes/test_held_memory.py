"""Memory that somebody else holds, or that was used up, by tables and half sentences."""

from __future__ import annotations

import pytest

from gpudoc.doctor.causes import held_memory
from gpudoc.doctor.model import Evidence, Finding
from gpudoc.facts.readers import read
from tests.doctor.causes.judge import first, named

TABLE = """| NVIDIA-SMI 535.54.03    Driver Version: 535.54.03    CUDA Version: 12.2 |
|-------------------------------+----------------------+----------------------+
| GPU  Name        Persistence-M| Bus-Id        Disp.A | Volatile Uncorr. ECC |
| Fan  Temp  Perf  Pwr:Usage/Cap|         Memory-Usage | GPU-Util  Compute M. |
|===============================+======================+======================|
|   0  Tesla V100-SXM2...  Off  | 00000000:05:00.0 Off |                    0 |
| N/A   36C    P0    41W / 300W |  {used}MiB / 16280MiB |      0%      Default |
+-------------------------------+----------------------+----------------------+
| Processes:                                                       GPU Memory |
|  GPU       PID   Type   Process name                             Usage      |
|=============================================================================|
{rows}+-----------------------------------------------------------------------------+
"""
ROW = "|    0      4711      C   python                                     11800MiB |\n"


def test_memory_without_a_process_belongs_to_somebody_who_is_not_listed():
    assert first(f"I get OOM at once\n{TABLE.format(used=11900, rows='')}") == "oom_other_process"


@pytest.mark.parametrize(("used", "rows"), [(11900, ROW), (300, "")])
def test_memory_with_an_owner_or_hardly_any_does_not(used, rows):
    reading = read(f"I get OOM at once\n{TABLE.format(used=used, rows=rows)}")
    evidence = Evidence(source="file", machine=reading.machine, reading=reading)
    found = [answer for finder in held_memory.FINDERS for answer in finder.find(evidence)]
    assert "oom_other_process" not in [answer.id for answer in found if isinstance(answer, Finding)]


@pytest.mark.parametrize(
    "text",
    [
        "RuntimeError: cublas runtime error : resource allocation failed at THCGeneral.cpp:216",
        "mxnet: Check failed: e == CUBLAS_STATUS_SUCCESS (1 vs. 0) : Create cublas handle failed",
        "UnknownError: Failed to get convolution algorithm. This is probably because cuDNN failed to initialize",
    ],
)
def test_libraries_that_could_not_start_had_no_memory(text):
    assert first(text) == "oom_masked_as_library_error"


def test_a_library_that_could_not_be_loaded_is_another_matter():
    text = "Failed to get convolution algorithm. This is probably because cuDNN failed to initialize\nLoaded runtime CuDNN library: 7.1 but source was compiled with: 7.4"
    assert "oom_masked_as_library_error" not in named(text)[:1]


def test_the_allocators_own_hint_tells_nothing():
    text = "CUDA out of memory. If reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation."
    assert "oom_fragmentation" not in named(text)


@pytest.mark.parametrize(
    "text",
    [
        "The tuner chose batch size 900 and then fit is out of memory on the gpu",
        "yolo train batch=-1 stops in the second epoch: CUDA out of memory",
        "Automatic batch selection takes too many images: torch.cuda.OutOfMemoryError: CUDA out of memory.",
    ],
)
def test_a_batch_size_that_a_program_chose(text):
    assert first(text) == "oom_after_batch_size_finder"


def test_a_finder_that_is_switched_off_chose_nothing():
    assert "oom_after_batch_size_finder" not in named(
        "auto_find_batch_size=False\nCUDA out of memory with batch size 8"
    )
