from __future__ import annotations

import pytest

from tests.doctor.causes.judge import first, ids, report_of

CASES = [
    # compiled by hand, for other cards
    ("extension_missing_arch", "python setup.py build_ext --inplace went well; then: knn kernel failed: invalid device function"),
    ("extension_missing_arch", "The projector was built from source. RuntimeError: CUDA error: no kernel image is available for execution on the device. "
     "Ordinary PyTorch operations do not raise it."),
    # an error that names the source of another package
    ("extension_missing_arch", "CUDA kernel failed : no kernel image is available for execution on the device\nvoid ball_query(int) at L:40 in /src/ops/ball_query_gpu.cu"),
    ("extension_missing_arch", "RuntimeError: cuda runtime error (209) : no kernel image is available for execution on the device at /src/layers/csrc/align_kernel.cu:90"),
    ("extension_missing_arch", "On the V100 it says: error in corr_forward: no kernel image is available for execution on the device"),
    # a library of torch by a name that this torch has not
    ("extension_torch_abi_mismatch", "import spline_ops\nImportError: libtorch_cuda_cpp.so: cannot open shared object file: No such file or directory"),
    # Apple
    ("mps_macos_too_old", "torch 2.5.1 on macOS 12.6, torch.backends.mps.is_available() is False and is_built() is True"),
    ("mps_macos_too_old", "RuntimeError: MPS: nonzero op is supported natively starting from macOS 13.0"),
    ("mps_macos_too_old", "MPS does not work for me, macOS 12.5, M1 Pro, fresh installation"),
    # a libcuda of the image instead of the host's
    ("libcuda_mismatch_803", "CUDA failed to initialize [[ System has unsupported display driver"),
    ("libcuda_mismatch_803", "In the container the compat libs override the host driver and CUDA does not start; after rm -rf /usr/local/cuda/compat it does"),
    # the system's libraries
    ("libstdcxx_too_old", "scipy wants GLIBCXX_3.4.29 and dies when I import torch before it"),
    ("glibc_too_old", "the loader needs GLIBC_2.32, our login node has CentOS 8"),
    ("libcuda_not_linkable", "torch.compile stops, there is only libcuda.so.1 in the image and no libcuda.so"),
    ("libcuda_not_linkable", "gcc skipping incompatible libcuda.so when searching for -lcuda"),
    # packages
    ("extension_built_for_other_cuda", "CUDA SETUP: Required library version not found: libbitsandbytes_cuda115.so."),
    ("mixed_cuda_packages", "After conda install cupy-core the version of cudnn is changed and pytorch fails"),
    ("mixed_cuda_packages", "pip list\ncupy-cuda11x 13.3.0\ncupy-cuda12x 13.3.0\ncp.ones crashes"),
    ("mixed_cuda_packages", "nvidia-cublas 13.0.0.19\nnvidia-cublas-cu12 12.8.4.1\ntorch 2.9.0: matmul fails"),
    ("windows_dll_dependency_missing", "error loading c10.dll right after a clean installation"),
    ("bundled_cuda_library_missing", ">>> import torch\nImportError: [libcusparse.so](http://libcusparse.so/).12: cannot open shared object file"),
]  # fmt: skip


@pytest.mark.parametrize(("cause", "text"), CASES)
def test_builds_and_libraries_that_do_not_belong_together(cause, text):
    assert first(text) == cause, [(f.id, f.confidence, f.severity) for f in report_of(text).findings]


@pytest.mark.parametrize(
    ("cause", "text"),
    [
        ("extension_missing_arch", "I compiled pytorch from source with setup.py install: no kernel image is available for execution on the device"),
        ("extension_missing_arch", "no kernel image is available for execution on the device (launch_kernel at /opt/conda/conda-bld/pytorch_157/work/aten/src/ATen/native/cuda/Loops.cuh:102)"),
        ("extension_torch_abi_mismatch", 'File "torch/__init__.py", line 229\n    from torch._C import *\nImportError: libtorch_cuda.so: cannot open shared object file'),
        ("mps_macos_too_old", "macOS 14.4, torch 2.4.0: torch.backends.mps.is_available() is False in this virtual machine"),
        ("mps_macos_too_old", "UserWarning: MPS: no support for int64 reduction ops, casting it to int32"),
        ("libstdcxx_too_old", "strings libstdc++.so.6 shows GLIBCXX_3.4.30, training runs, loss 0.2"),
        ("libcuda_not_linkable", "nvidia-smi and libcuda.so.1 are there, torch.compile takes 20 s, loss 0.2"),
        ("mixed_cuda_packages", "nvidia-cublas-cu12 12.4.5.8\nnvidia-cudnn-cu12 9.1.0.70\ncupy-cuda12x 13.3.0\nloss 0.3"),
        ("windows_dll_dependency_missing", "c10.dll and shm.dll are in torch\\lib as they should be"),
    ],
)  # fmt: skip
def test_near_misses_stay_silent(cause, text):
    assert cause not in [f.id for f in report_of(text).findings if f.severity == "broken" and f.confidence >= 0.5], ids(
        text
    )
