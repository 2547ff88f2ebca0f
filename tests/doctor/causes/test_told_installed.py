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
    ("glibc_too_old", "Ubuntu 20.04 does not come with the glibc that this flash_attn wheel was linked with"),
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
    ("jetson_generic_wheel", 'Xavier NX, JetPack 4.6. pip3 install torch gave me 1.10.0 from PyPI; CUDA is not available in '
     'it.'),
    ("jetson_generic_wheel", 'On my Jetson Orin Nano torch.cuda.is_available() is False, I installed PyTorch with pip in a '
     'venv'),
    ("numpy2_abi", 'Since numpy was upgraded to 2.0.1 importing torch 2.1 prints a huge warning and from_numpy does '
     'not work any longer'),
    ("numpy2_abi", 'AttributeError: _ARRAY_API not found; ImportError: numpy.core.multiarray failed to import when '
     'I import cv2 and torch'),
    ("glibc_too_old", "Our HPC still runs CentOS 7 with glibc 2.17 and the torch 2.6 wheel doesn't start there, it "
     'wants GLIBC_2.27'),
    ("glibc_too_old", 'ERROR: torch-2.7.0-cp311-cp311-manylinux_2_28_x86_64.whl is not a supported wheel on this '
     'platform.'),
    ("libstdcxx_too_old", "ImportError: /usr/lib64/libstdc++.so.6: version `CXXABI_1.3.13' not found (required by "
     'torch_sparse)'),
    ("windows_dll_dependency_missing", "Importing torch on a new Windows laptop fails, some dll isn't found (fbgemm). Installing the "
     "Visual C++ runtime didn't help."),
    ("windows_dll_dependency_missing", 'OSError: [WinError 127] Die angegebene Prozedur wurde nicht gefunden. Error loading '
     '"C:\\py\\Lib\\site-packages\\torch\\lib\\torch_cuda.dll" or one of its dependencies.'),
    ("libcuda_not_linkable", 'AssertionError: libcuda.so cannot found!\n'
     "Possible files are located at ['/usr/lib/wsl/lib/libcuda.so.1'].Please create a symlink of "
     'libcuda.so to any of the file.'),
    ("too_many_open_files", 'After a few epochs the DataLoader dies: OSError 24, too many open files; ulimit -n is 1024'),
    ("shm_too_small", 'docker container has the default 64M of /dev/shm and workers crash with bus errors'),
    ("nccl_shm_too_small", 'NCCL WARN Error while creating shared memory segment /dev/shm/nccl-a1b2 (size 9637888)'),
    ("visible_devices_hides_gpu", "The launcher sets CUDA_VISIBLE_DEVICES='' before it starts my script so PyTorch finds no device"),
    ("visible_devices_hides_gpu", 'In ~/.bashrc I had export CUDA_VISIBLE_DEVICES=-1 from an old experiment and wondered why torch '
     'only uses the CPU'),
    ("library_path_shadows_bundled", 'My .bashrc puts /usr/local/cuda-11.8/lib64 into LD_LIBRARY_PATH; with it torch 2.3 crashes in '
     'the first convolution, without it everything works'),
    ("library_path_shadows_bundled", 'ImportError: '
     '/opt/venv/lib/python3.11/site-packages/torch/lib/../../nvidia/cusparse/lib/libcusparse.so.12: '
     'undefined symbol: __nvJitLinkComplete_12_4, version libnvJitLink.so.12'),
    ("mixed_cuda_packages", 'pip list shows nvidia-cudnn-cu11 8.9 and nvidia-cudnn-cu12 9.1 next to each other, since then '
     'conv2d crashes in torch'),
    ("gpu_newer_than_wheel_archs", 'Brand new RTX PRO 6000 Blackwell, torch 2.5.1+cu121: CUDA kernels cannot be executed on it'),
    ("gpu_newer_than_wheel_archs", 'H100 with an old image that has torch 1.10 and CUDA 10.2: no kernel image is available for '
     'execution on the device'),
    ("gpu_older_than_wheel_archs", 'K80 and torch 2.1: Found GPU0 Tesla K80 which is of cuda capability 3.7. PyTorch no longer '
     'supports this GPU because it is too old.'),
    ("gpu_older_than_wheel_archs", 'With torch 2.8 cu129 my GTX 1080 Ti stopped working: the new wheels have no code for Pascal'),
    ("cpu_only_torch", 'conda list\n'
     'pytorch                   2.1.0               py3.10_cpu_0    pytorch\n'
     'the GPU is not used'),
    ("cpu_only_torch", 'pip freeze says torch==2.3.0+cpu although I followed the instructions; the RTX 3060 sits idle'),
    ("cpu_only_torch", 'print(torch.version.cuda) prints None and torch.cuda.is_available() prints False, nvidia-smi is '
     'OK'),
    ("torchvision_torch_mismatch", 'After upgrading torch only, import torchvision dies: operator torchvision::nms does not exist'),
    ("torchvision_torch_mismatch", "NotImplementedError: Could not run 'torchvision::nms' with arguments from the 'CUDA' backend."),
    ("extension_torch_abi_mismatch", 'flash_attn was compiled against torch 2.1, we upgraded to 2.4 and now its import ends with an '
     'undefined symbol of c10'),
    ("extension_torch_abi_mismatch", 'ImportError: mmcv/_ext.cpython-38-x86_64-linux-gnu.so: undefined symbol: '
     '_ZNK2at6Tensor8data_ptrIdEEPT_v'),
    ("extension_built_for_other_cuda", 'apex setup.py: Cuda extensions are being compiled with a version of Cuda that does not match '
     'the version used to compile Pytorch binaries. Pytorch binaries were compiled with Cuda 11.7.'),
    ("extension_built_for_other_cuda", 'ImportError: libcudart.so.11.0: cannot open shared object file: No such file or directory, from '
     'site-packages/flash_attn, torch is 2.2.0+cu121'),
    ("extension_missing_arch", 'CUDA error (flash-attention/csrc/flash_fwd.h:125): no kernel image is available for execution '
     'on the device; plain torch matmul works on this T4'),
    ("triton_torch_mismatch", 'I pip installed triton 2.1 by hand, torch 2.4 asks for 3.0; now torch.compile ends in '
     'ImportError'),
    ("wrong_accelerator_build", 'I have a Radeon RX 7900 XTX and pip gave me torch 2.4.0+cu121, it looks for an NVIDIA driver'),
    ("wrong_accelerator_build", 'torch 2.3.1+rocm6.0 in a machine with an RTX 4090: No HIP GPUs are available'),
    ("python_unsupported_by_wheel", 'pip install torch on Python 3.14 ends with: Could not find a version that satisfies the '
     'requirement torch (from versions: none)'),
    ("python_unsupported_by_wheel", 'We use a 32 bit Python on Windows, pip finds no torch at all'),
    ("bundled_cuda_library_missing", 'ImportError: libcupti.so.12: cannot open shared object file: No such file or directory when I '
     'import torch from the venv'),
    ('cpu_only_torch', '默认装的是CPU版本的torch，怎么换成GPU版'),
    ('cpu_only_torch', 'conda 装出来的 pytorch 是 cpu 版的'),
    ('cpu_only_torch', 'pyproject lists https://download.pytorch.org/whl/cu121 but after the sync torch is the CPU build'),
    ('extension_torch_abi_mismatch', 'After upgrading torch to 2.3 my script ends with\nImportError: /opt/env/lib/python3.10/site-packages/spconv/core_cc.cpython-310-x86_64-linux-gnu.so'),
]  # fmt: skip
HEALTHY = [
    "Requirement already satisfied: numpy<2,>=1.21 in ./lib\nCollecting numpy<2\nSuccessfully installed numpy-1.26.4",
    "torch 2.6.0 with triton 3.2.0, torch.compile takes 20 s, step 4 loss 0.3",
    "lightning 2.2 requires torch>=2.0, but you have torch 2.4.1\nepoch 1 loss 2.0",
    "We build for manylinux_2_28 and for cp310 to cp313; step 3 loss 0.1",
    "训练正常，torch 2.3.0+cu121，step 10 loss 0.31",
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
