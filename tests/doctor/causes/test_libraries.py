from __future__ import annotations

import pytest

from tests.doctor.causes.judge import first, ids, report_of

CASES = [
    (
        "extension_built_for_other_cuda",
        "`fa3F@0.0.0` is not supported because:\n    requires device with capability > (9, 0) but your GPU has "
        "capability (8, 9) (too old)\n`cutlassF-pt` is not supported because:\n"
        "    xFormers wasn't build with CUDA support\n",
    ),
    (
        "triton_torch_mismatch",
        "  attrs = {f.name for f in fields(AttrsDescriptor)}\nTypeError: must be called with a dataclass type or instance",
    ),
    ("library_path_shadows_bundled", "cuDNN error: CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH"),
    (
        "library_path_shadows_bundled",
        "ImportError: /venv/lib/python3.11/site-packages/torch/lib/../../nvidia/cusparse/lib/libcusparse.so.12: "
        "undefined symbol: __nvJitLinkAddData_12_1, version libnvJitLink.so.12",
    ),
    (
        "library_path_shadows_bundled",
        "RuntimeError: cuDNN version incompatibility: PyTorch was compiled against (9, 1, 0) but found runtime version "
        "(8, 9, 7). PyTorch already comes bundled with cuDNN.",
    ),
    ("library_path_shadows_bundled", "libtorch_cuda.so: undefined symbol: ncclCommWindowRegister"),
    (
        "library_path_shadows_bundled",
        "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED\n$ echo $LD_LIBRARY_PATH\n/usr/local/cuda-11.2/lib64",
    ),
    (
        "bundled_cuda_library_missing",
        '  File "/venv/lib/python3.12/site-packages/torch/__init__.py", line 405, in <module>\n'
        "    from torch._C import *\nImportError: libcudnn.so.9: cannot open shared object file: No such file or directory",
    ),
    (
        "bundled_cuda_library_missing",
        "Could not load library libcudnn_cnn_train.so.8. Error: libcudnn_cnn_train.so.8: cannot open",
    ),
    (
        "bundled_cuda_library_missing",
        "ValueError: libcublas.so.*[0-9] not found in the system path ['/home/me/project']",
    ),
    (
        "extension_built_for_other_cuda",
        '  File "/venv/lib/python3.10/site-packages/flash_attn/__init__.py", line 3, in <module>\n'
        "ImportError: libcudart.so.11.0: cannot open shared object file: No such file or directory",
    ),
    (
        "extension_built_for_other_cuda",
        "RuntimeError: The detected CUDA version (12.4) mismatches the version that was used to compile PyTorch (11.8).",
    ),
    (
        "extension_torch_abi_mismatch",
        "ImportError: /opt/conda/lib/python3.10/site-packages/flash_attn_2_cuda.cpython-310-x86_64-linux-gnu.so: "
        "undefined symbol: _ZN2at4_ops5zeros4callEN3c108ArrayRefINS2_6SymIntEEE",
    ),
    (
        "extension_torch_abi_mismatch",
        "WARNING[XFORMERS]: xFormers can't load C++/CUDA extensions. xFormers was built for:\n"
        "    PyTorch 2.3.0+cu121 with CUDA 1201 (you have 2.4.0+cu121)",
    ),
    ("extension_missing_arch", "RuntimeError: FlashAttention only supports Ampere GPUs or newer."),
    (
        "extension_missing_arch",
        "Error no kernel image is available for execution on the device at line 167 in file "
        "/mmfs1/gscratch/bitsandbytes/csrc/ops.cu",
    ),
    (
        "torchvision_torch_mismatch",
        "RuntimeError: Couldn't load custom C++ ops. This can happen if your PyTorch and torchvision versions are incompatible",
    ),
    (
        "torchvision_torch_mismatch",
        "AttributeError: partially initialized module 'torchvision' has no attribute 'extension' (most likely due to a circular import)",
    ),
    (
        "torchvision_torch_mismatch",
        "NotImplementedError: Could not run 'torchvision::nms' with arguments from the 'CUDA' backend.",
    ),
    (
        "torchvision_torch_mismatch",
        "torchvision 0.19.0 requires torch==2.4.0, but you have torch 2.6.0 which is incompatible.",
    ),
    (
        "numpy2_abi",
        "ValueError: numpy.dtype size changed, may indicate binary incompatibility. Expected 96 from C header, got 88",
    ),
    ("numpy2_abi", "RuntimeError: Numpy is not available"),
    ("triton_torch_mismatch", "ModuleNotFoundError: No module named 'triton.ops'"),
    ("triton_torch_mismatch", "AttributeError: module 'triton.language' has no attribute 'constexpr_function'"),
    ("triton_torch_mismatch", "torch 2.5.1 requires triton==3.1.0; but you have triton 3.3.0 which is incompatible."),
    ("glibc_too_old", "ImportError: /lib64/libc.so.6: version `GLIBC_2.28' not found (required by libtorch_cpu.so)"),
    ("libstdcxx_too_old", "/lib/x86_64-linux-gnu/libstdc++.so.6: version `GLIBCXX_3.4.32' not found"),
    (
        "libcuda_not_linkable",
        "/usr/bin/ld: cannot find -lcuda: No such file or directory\ncollect2: error: ld returned 1",
    ),
    ("libcuda_not_linkable", "AssertionError: libcuda.so cannot found!"),
    (
        "windows_dll_dependency_missing",
        'OSError: [WinError 1114] A dynamic link library (DLL) initialization routine failed. Error loading "C:\\py\\torch\\lib\\c10.dll" or one of its dependencies.',
    ),
    (
        "python_unsupported_by_wheel",
        "ERROR: Could not find a version that satisfies the requirement torch (from versions: none)",
    ),
    (
        "python_unsupported_by_wheel",
        "error: Distribution `torch==2.2.2` can't be installed because it doesn't have a source distribution or wheel: torch has no wheels with a matching Python ABI tag (e.g., `cp313`)",
    ),
    ("python_unsupported_by_wheel", "RuntimeError: Dynamo is not supported on Python 3.12+"),
    (
        "mps_macos_too_old",
        "RuntimeError: The MPS backend is supported on MacOS 14.0+. Current OS version can be queried using `sw_vers`",
    ),
    (
        "mixed_cuda_packages",
        "Is CUDA available: False\n[pip3] torch==2.5.1\n[pip3] nvidia-cublas-cu11==11.11.3.6\n[pip3] nvidia-cublas-cu12==12.4.5.8\n"
        "[pip3] nvidia-cudnn-cu11==8.7.0.84\n[pip3] nvidia-cudnn-cu12==9.1.0.70",
    ),
    (
        "extension_torch_abi_mismatch",
        "ImportError: mamba_ssm/selective_scan_cuda.so undefined symbol _ZN3c104cuda9SetDeviceEi",
    ),
    (
        "windows_dll_dependency_missing",
        'Fehler beim Laden von "D:\\py\\torch\\lib\\c10.dll" or one of its dependencies',
    ),
]


@pytest.mark.parametrize(("cause", "text"), CASES)
def test_what_the_loader_says_names_the_cause(cause, text):
    assert first(text) == cause, [(f.id, f.confidence) for f in report_of(text).findings]


def test_a_system_cudnn_beside_a_working_torch_is_no_fault():
    text = (
        "PyTorch version: 2.1.0+cu118\nIs CUDA available: True\nGPU models and configuration: GPU 0: Tesla V100\n"
        "Nvidia driver version: 525.60.13\ncuDNN version: Probably one of the following:\n"
        "/usr/lib/x86_64-linux-gnu/libcudnn.so.8.2.0\n/usr/local/cuda-11.4/targets/x86_64-linux/lib/libcudnn.so.8.4.1\n"
    )
    assert report_of(text).verdict == "healthy", ids(text)
