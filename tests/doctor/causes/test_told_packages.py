from __future__ import annotations

import pytest

from tests.doctor.causes.judge import first, ids, report_of

CASES = [
    ("triton_torch_mismatch", "torch.compile fails\npytorch-triton==3.1.0+cf34004b8a\ntriton==3.0.0\n"),
    ("triton_torch_mismatch", "torch._inductor.exc.TritonMissing: Cannot find a working triton installation."),
    ("triton_torch_mismatch", "AttributeError: type object 'JITFunction' has no attribute 'cache_key' in torch/_inductor/runtime"),
    ("triton_torch_mismatch", "Since I upgraded to triton 3.5 every import of unsloth ends with an ImportError"),
    ("triton_torch_mismatch", "The nightly triton breaks inductor, with the pinned one it compiles"),
    ("triton_torch_mismatch", "CompiledKernel object does not has any of the attributes: ('num_ctas', 'numCtas')"),
    ("python_unsupported_by_wheel", "DEBUG Solving with installed Python version: 3.13.1\nDEBUG No compatible version found for: torch"),
    ("torchvision_torch_mismatch", "Setup says that the versions of torch and torchvision are incompatible, which ones do I take?"),
    # whose card it is
    ("wrong_accelerator_build", "Radeon RX 6700 XT, Windows 11: the web UI says that torch is not able to use GPU"),
    ("wrong_accelerator_build", "Intel Arc A770 here, torch.cuda.is_available() gives False"),
    ("wrong_accelerator_build", "My graphics card is an AMD, and training ends with AssertionError: Torch not compiled with CUDA enabled"),
    ("wrong_accelerator_build", "Is there a way with AMD graphics? pytorch asks for CUDA and I can't install CUDA on this card."),
    ("wrong_accelerator_build", "It is not detecting my AMD GPU, a 7900xtx, and generates everything on the processor"),
    ("wrong_accelerator_build", "RX 5700 XT: NO GPU DETECTED, falling back to CPU"),
    # a build without CUDA, told without its version
    ("cpu_only_torch", "GPU版本的怎么安装？win10上torch.cuda.is_available()是False"),
    ("cpu_only_torch", "How do I install the GPU version of torch? torch.cuda.is_available() is False here"),
    ("cpu_only_torch", "After installing the requirements of the package PyTorch no longer sees the GPU"),
    ("cpu_only_torch", "nvidia-smi works and shows the card, CUDA toolkit is installed, but in torch torch.cuda.is_available() returns False"),
]  # fmt: skip


@pytest.mark.parametrize(("cause", "text"), CASES)
def test_packages_that_do_not_belong_to_torch_or_to_the_card(cause, text):
    assert first(text) == cause, [(f.id, f.confidence, f.severity) for f in report_of(text).findings]


@pytest.mark.parametrize(
    ("cause", "text"),
    [
        ("triton_torch_mismatch", "torch==2.6.0\ntriton==3.2.0\ntorch.compile fails with a shape error of mine"),
        ("triton_torch_mismatch", "I installed triton 3.2 for torch 2.6, my @triton.jit kernel fails with a TypeError in tl.dot(a, b)"),
        ("triton_torch_mismatch", "triton 3.2 is there, torch.compile takes 20 s, step 4 loss 0.3"),
        ("torchvision_torch_mismatch", "torch 2.4.0 and torchvision 0.19.0 match, epoch 3 loss 0.2"),
        ("wrong_accelerator_build", "RX 7900 XTX with torch 2.4.0+rocm6.1, torch.cuda.is_available() False, rocminfo needs sudo"),
        ("wrong_accelerator_build", "7900 XTX with rocm/pytorch: no GPU detected, falling back to CPU"),
        ("wrong_accelerator_build", "Radeon graphics and an MX450: it only uses the CPU, torch.cuda.is_available() is False"),
        ("wrong_accelerator_build", "AMD Ryzen 9 and a GeForce RTX 4090: torch.cuda.is_available() is False"),
        ("cpu_only_torch", "After pip install torch the driver is missing: torch.cuda.is_available() is False in the container"),
        ("cpu_only_torch", "nvidia-smi works, but torch.cuda.is_available() is False in docker"),
        ("cpu_only_torch", "nvidia-smi works and torch.cuda.is_available() is True after pip install torch"),
    ],
)  # fmt: skip
def test_near_misses_stay_silent(cause, text):
    assert cause not in [f.id for f in report_of(text).findings if f.severity == "broken" and f.confidence >= 0.5], ids(
        text
    )
