from __future__ import annotations

import pytest

from tests.doctor.causes.judge import first, ids, report_of


@pytest.mark.parametrize(
    "line",
    [
        "Process rank: -1, device: cpu, n_gpu: 0, distributed training: False, 16-bits training: False",
        "INFO - Use pytorch device_name: cpu",
        "Using cpu device",
        "i Using CPU\ni To switch to GPU 0, use the option: --gpu-id 0",
        "training on 0 devices (GPUs/TPUs)",
        "INFO:root:Start training with [cpu(0)]",
        "I0412 10:11:12.123 caffe.cpp:249] Use CPU.",
        " > Using CUDA: False",
        "Using device: cpu",
    ],
)
def test_a_program_that_says_that_it_took_the_cpu(line):
    text = f"I have an RTX 3080 but an epoch needs hours, why?\n{line}\nepoch 1"
    assert first(text) == "training_on_cpu", [(f.id, f.confidence) for f in report_of(text).findings]


@pytest.mark.parametrize(
    "text",
    [
        "Using device: cpu\nepoch 1 loss 0.3\nepoch 2 loss 0.2",
        "I have no GPU, so it prints Using device: cpu and is slow. How can I make the model smaller?",
        "Using device: cuda\nmy RTX 3080 needs an hour per epoch, why?",
        "Using cpu device, because of --no-cuda. How long does it take on a GPU?",
    ],
)
def test_the_cpu_that_was_meant_is_no_finding(text):
    assert "training_on_cpu" not in [f.id for f in report_of(text).findings if f.severity != "info"]


def test_a_gpu_that_torch_does_not_see_is_the_root():
    text = "Using device: cpu, why? torch 2.3.0+cpu, torch.cuda.is_available() False, RTX 3080"
    assert first(text) == "cpu_only_torch"
    assert "training_on_cpu" not in ids(text)[:1]
