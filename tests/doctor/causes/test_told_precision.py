from __future__ import annotations

import pytest

from tests.doctor.causes.judge import first, ids, report_of

CASES = [
    # every torch has its own words for a kernel that is missing
    ("half_on_cpu", "SoftmaxKernelImpl\" not implemented for 'Half\nwhat does it mean, the demo is the one of the readme"),
    ("half_on_cpu", "RuntimeError: _th_addmm not supported on CPUType for Half"),
    ("half_on_cpu", "RuntimeError: _thnn_batch_norm is not implemented for type torch.HalfTensor"),
    ("half_on_cpu", "ValueError: Requested float16 compute type, but the target device or backend do not support efficient float16 computation."),
    ("half_on_cpu", "MisconfigurationException: You have asked for native AMP on CPU, but AMP is only available on GPU."),
    ("half_on_cpu", "--fp16 and --fp16_full_eval can only be used on CUDA devices, says the trainer on my laptop"),
    ("half_on_cpu", "On the GPU it is fine, error when using CPU: Input type (struct c10::Half) and bias type (float) should be the same"),
    ("half_on_cpu", "RuntimeError: expected scalar type Float but found Half\nI run the sample on the cpu, torch 1.12"),
    # and so have people
    ("half_on_cpu", "Generating with fp16 does not run on the CPU, the process just ends"),
    ("half_on_cpu", "我的电脑没有显卡，CPU 不支持半精度，怎么改成单精度"),
    ("bf16_unsupported_gpu", "Can I finetune this on a V100? It does not support bf16."),
    ("bf16_unsupported_gpu", "my 2080 Ti has no support for bfloat16, how do I change the dtype in the config"),
    ("bf16_unsupported_gpu", "T4 显卡不支持 bf16，可以用 fp16 吗"),
    ("bf16_unsupported_gpu", "Our GPUs can't do bf16. Which option turns it off?"),
    ("bf16_unsupported_gpu", "ValueError: Type bf16 is not supported."),
    ("bf16_unsupported_gpu", "ptxas error : Feature 'cvt with .bf16' requires .target sm_80 or higher"),
]  # fmt: skip


@pytest.mark.parametrize(("cause", "text"), CASES)
def test_a_precision_that_the_device_has_not(cause, text):
    assert first(text) == cause, [(f.id, f.confidence, f.severity) for f in report_of(text).findings]


def test_bf16_that_is_switched_on_for_an_old_card_is_a_suspicion_where_training_suffers():
    found = report_of(
        "training_args: bf16: true, GPU is a Quadro RTX 6000. After 100 steps the samples are only noise"
    ).findings
    assert [(f.id, f.severity) for f in found if f.id == "bf16_unsupported_gpu"] == [
        ("bf16_unsupported_gpu", "warning")
    ]


@pytest.mark.parametrize(
    "text",
    [
        "half of the images are loaded on the CPU, the other half is not supported by our reader yet",
        "UserWarning: FP16 is not supported on CPU; using FP32 instead\nepoch 1 loss 0.4",
        "\"triu_tril_cuda_template\" not implemented for 'Half'",
        "RuntimeError: expected scalar type Float but found Half, on two RTX 3090",
    ],
)
def test_other_troubles_of_half_precision_are_not_the_cpus(text):
    assert not [f for f in report_of(text).findings if f.id == "half_on_cpu" and f.confidence > 0.7], ids(text)


@pytest.mark.parametrize(
    "text",
    [
        "bf16: true on an A100, loss 0.4 after 100 steps",
        "We use fp16 because the V100 does not support bf16; epoch 3 loss 0.2",
        "bfloat16 is not supported by numpy, so convert the tensor first. Card: RTX 2080",
        "mixed_precision: bf16 with a 4090 is slower than I hoped, the old V100 took 3 h",
    ],
)
def test_bf16_on_a_card_that_has_it_or_somewhere_else(text):
    assert "bf16_unsupported_gpu" not in [f.id for f in report_of(text).findings if f.severity != "info"], ids(text)
