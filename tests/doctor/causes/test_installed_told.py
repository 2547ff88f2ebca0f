from __future__ import annotations

import pytest

from tests.doctor.causes.judge import first, ids, report_of

CASES = [
    ("cpu_only_torch", "poetry add torch gets me the cpu-only build on Windows, although I have an RTX 3060"),
    ("cpu_only_torch", "It resolves to the CPU version of torch even though cuda 12.4 is there"),
    ("cpu_only_torch", "uv sync ends with 2.4.1+cpu and torch.cuda.is_available() stays False"),
    ("numpy2_abi", "torch 2.1 only works with numpy<2, with the current numpy every import of it fails"),
    ("numpy2_abi", "TypeError: expected np.ndarray (got numpy.ndarray)"),
    ("numpy2_abi", "RuntimeError: Could not infer dtype of numpy.int64"),
    ("glibc_too_old", "The new wheels need glibc 2.28 and our cluster is CentOS 7"),
    ("glibc_too_old", "hint: You're on Linux (`manylinux_2_17_x86_64`), but `torch` (v2.7.0) only has wheels for the "
     "following platforms: `manylinux_2_28_x86_64`"),
    ("python_unsupported_by_wheel", "error: Distribution `torch==2.5.1` can't be installed because it doesn't have a source "
     "distribution or wheel for the current platform"),
    ("python_unsupported_by_wheel", "There are no wheels of torch for Python 3.14 yet, the installation ends"),
    ("extension_built_for_other_cuda", "host_config.h:143: error: #error -- unsupported GNU version! gcc versions later than 11 "
     "are not supported!\nerror: command 'nvcc' failed"),
    ("extension_built_for_other_cuda", "OSError: CUDA_HOME environment variable is not set. Please set it to your CUDA install root."),
    ("triton_torch_mismatch", "torch 2.4.1 with triton 3.2.0: torch.compile ends in an ImportError of inductor"),
    ("torchvision_torch_mismatch", "torchaudio 2.3.0 requires torch==2.3.0, but you have torch 2.4.1 which is incompatible."),
    ("extension_torch_abi_mismatch", "auto-gptq 0.7.1 requires torch==2.2.1, but you have torch 2.5.0 which is incompatible."),
    ("library_path_shadows_bundled", "import torch dies with undefined symbol ncclCommSplit in libtorch_cuda"),
]  # fmt: skip
HEALTHY = [
    "Requirement already satisfied: numpy<2,>=1.21 in ./lib\nCollecting numpy<2\nSuccessfully installed numpy-1.26.4",
    "torch 2.6.0 with triton 3.2.0, torch.compile takes 20 s, step 4 loss 0.3",
    "lightning 2.2 requires torch>=2.0, but you have torch 2.4.1\nepoch 1 loss 2.0",
    "We build for manylinux_2_28 and for cp310 to cp313; step 3 loss 0.1",
]


@pytest.mark.parametrize(("cause", "text"), CASES)
def test_what_installers_and_people_say(cause, text):
    assert first(text) == cause, [(f.id, f.confidence) for f in report_of(text).findings]


@pytest.mark.parametrize("text", HEALTHY)
def test_the_same_words_where_nothing_is_wrong(text):
    report = report_of(text)
    assert not [f for f in report.findings if f.severity == "broken"], ids(text)


def test_a_nightly_build_belongs_to_a_triton_of_its_day():
    text = "torch 2.7.0.dev20250201+cu126 with triton 3.2.0: torch.compile fails with an error of our own model"
    assert "triton_torch_mismatch" not in ids(text)
