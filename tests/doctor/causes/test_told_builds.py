from __future__ import annotations

import pytest

from tests.doctor.causes.judge import first, ids, report_of

CASES = [
    # compiled by hand, for other cards
    ("extension_missing_arch", "python setup.py build_ext --inplace went well; then: knn kernel failed: invalid device function"),
    ("extension_missing_arch", "The projector was built from source. RuntimeError: CUDA error: no kernel image is available for execution on the device. "
     "Ordinary PyTorch operations do not raise it."),
    # a library of torch by a name that this torch has not
    ("extension_torch_abi_mismatch", "import spline_ops\nImportError: libtorch_cuda_cpp.so: cannot open shared object file: No such file or directory"),
    # Apple
    ("mps_macos_too_old", "torch 2.5.1 on macOS 12.6, torch.backends.mps.is_available() is False and is_built() is True"),
    ("mps_macos_too_old", "RuntimeError: MPS: nonzero op is supported natively starting from macOS 13.0"),
    # the system's libraries
    ("libstdcxx_too_old", "scipy wants GLIBCXX_3.4.29 and dies when I import torch before it"),
    ("glibc_too_old", "the loader needs GLIBC_2.32, our login node has CentOS 8"),
    ("libcuda_not_linkable", "torch.compile stops, there is only libcuda.so.1 in the image and no libcuda.so"),
    ("libcuda_not_linkable", "gcc skipping incompatible libcuda.so when searching for -lcuda"),
    # packages
    ("mixed_cuda_packages", "pip list\ncupy-cuda11x 13.3.0\ncupy-cuda12x 13.3.0\ncp.ones crashes"),
    ("mixed_cuda_packages", "nvidia-cublas 13.0.0.19\nnvidia-cublas-cu12 12.8.4.1\ntorch 2.9.0: matmul fails"),
    ("triton_torch_mismatch", "torch.compile fails\npytorch-triton==3.1.0+cf34004b8a\ntriton==3.0.0\n"),
    ("triton_torch_mismatch", "torch._inductor.exc.TritonMissing: Cannot find a working triton installation."),
    ("torchvision_torch_mismatch", "Setup says that the versions of torch and torchvision are incompatible, which ones do I take?"),
    ("windows_dll_dependency_missing", "error loading c10.dll right after a clean installation"),
    ("bundled_cuda_library_missing", ">>> import torch\nImportError: [libcusparse.so](http://libcusparse.so/).12: cannot open shared object file"),
    # whose card it is
    ("wrong_accelerator_build", "Radeon RX 6700 XT, Windows 11: the web UI says that torch is not able to use GPU"),
    ("wrong_accelerator_build", "Intel Arc A770 here, torch.cuda.is_available() gives False"),
    ("cpu_only_torch", "After installing the requirements of the package PyTorch no longer sees the GPU"),
]  # fmt: skip


@pytest.mark.parametrize(("cause", "text"), CASES)
def test_builds_and_libraries_that_do_not_belong_together(cause, text):
    assert first(text) == cause, [(f.id, f.confidence, f.severity) for f in report_of(text).findings]


@pytest.mark.parametrize(
    ("cause", "text"),
    [
        ("extension_missing_arch", "I compiled pytorch from source with setup.py install: no kernel image is available for execution on the device"),
        ("extension_torch_abi_mismatch", 'File "torch/__init__.py", line 229\n    from torch._C import *\nImportError: libtorch_cuda.so: cannot open shared object file'),
        ("mps_macos_too_old", "macOS 14.4, torch 2.4.0: torch.backends.mps.is_available() is False in this virtual machine"),
        ("mps_macos_too_old", "UserWarning: MPS: no support for int64 reduction ops, casting it to int32"),
        ("libstdcxx_too_old", "strings libstdc++.so.6 shows GLIBCXX_3.4.30, training runs, loss 0.2"),
        ("libcuda_not_linkable", "nvidia-smi and libcuda.so.1 are there, torch.compile takes 20 s, loss 0.2"),
        ("mixed_cuda_packages", "nvidia-cublas-cu12 12.4.5.8\nnvidia-cudnn-cu12 9.1.0.70\ncupy-cuda12x 13.3.0\nloss 0.3"),
        ("triton_torch_mismatch", "torch==2.6.0\ntriton==3.2.0\ntorch.compile fails with a shape error of mine"),
        ("torchvision_torch_mismatch", "torch 2.4.0 and torchvision 0.19.0 match, epoch 3 loss 0.2"),
        ("windows_dll_dependency_missing", "c10.dll and shm.dll are in torch\\lib as they should be"),
        ("wrong_accelerator_build", "RX 7900 XTX with torch 2.4.0+rocm6.1, torch.cuda.is_available() False, rocminfo needs sudo"),
        ("cpu_only_torch", "After pip install torch the driver is missing: torch.cuda.is_available() is False in the container"),
    ],
)  # fmt: skip
def test_near_misses_stay_silent(cause, text):
    assert cause not in [f.id for f in report_of(text).findings if f.severity == "broken" and f.confidence >= 0.5], ids(
        text
    )
