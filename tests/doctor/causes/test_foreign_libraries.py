"""What other packages need of a system: Python's headers, FFmpeg, their own major version of cuDNN."""

from __future__ import annotations

import pytest

from tests.doctor.causes.judge import first, named

GCC = "/tmp/tmpx1/main.c:2:10: fatal error: Python.h: No such file or directory\ncompilation terminated.\n"
INDUCTOR = "torch._inductor.exc.InductorError: CalledProcessError: Command '['/usr/bin/gcc']' returned non-zero exit status 1.\n"
CODEC = (
    "RuntimeError: Could not load libtorchcodec. Likely causes:\n  1. FFmpeg is not properly installed in your "
    "environment.\nlibavutil.so.59: cannot open shared object file: No such file or directory\n"
)
OF_CUDNN_8 = (
    "Could not load library libcudnn_ops_infer.so.8. Error: libcudnn_ops_infer.so.8: cannot open shared object file: No "
    "such file or directory\nAborted (core dumped)\n"
)
NINE = "ctranslate2 4.4.0, torch 2.4.1 with nvidia-cudnn-cu12 9.1.0.70\n"


@pytest.mark.parametrize(("cause", "text"), [
    ("python_headers_missing", GCC),
    ("python_headers_missing", GCC + INDUCTOR),
    ("ffmpeg_missing", CODEC),
    ("extension_built_for_other_cudnn", OF_CUDNN_8 + NINE),
    ("extension_built_for_other_cudnn", "torch 2.5.1\nImportError: libcudnn.so.8: cannot open shared object file\n"),
])  # fmt: skip
def test_the_missing_file_of_another_package_is_named(cause, text):
    assert first(text) == cause


def test_without_the_other_version_it_is_a_library_that_is_missing():
    assert first(OF_CUDNN_8) == "bundled_cuda_library_missing"


def test_a_codec_that_was_built_for_another_torch_misses_no_ffmpeg():
    text = CODEC.partition("libavutil")[0] + "libtorchcodec_core7.so: undefined symbol: _ZN3c105ErrorC1\n"
    assert "ffmpeg_missing" not in named(text)


def test_a_sharded_tensor_beside_a_plain_one_is_named_with_its_line():
    text = (
        'Traceback (most recent call last):\n  File "train.py", line 12, in step\n    y = model.head.weight @ x\n'
        "RuntimeError: aten.mm.default: got mixed torch.Tensor and DTensor, need to convert all torch.Tensor to DTensor\n"
    )
    assert first(text) == "plain_tensor_meets_dtensor"


def test_a_session_that_prints_version_and_availability_as_a_pair_is_read():
    session = ">>> import torch; torch.__version__, torch.cuda.is_available()\n('2.3.1+cpu', False)\n"
    assert first(session + "My training runs on the CPU although there is an RTX 4070.") == "cpu_only_torch"
