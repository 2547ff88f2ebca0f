from __future__ import annotations

import pytest

from tests.doctor.causes.judge import first, ids, report_of

CASES = [
    (
        "driver_missing_or_not_loaded",
        "Our lab machine: the nvidia driver stopped working after last night's kernel upgrade, training is dead.",
    ),
    ("nvidia_uvm_missing", "nvidia-smi works in the container, CUDA does not: I forgot --device /dev/nvidia-uvm"),
    (
        "driver_too_old",
        "RuntimeError: CUDA driver initialization failed\nNVIDIA-SMI 430.64  Driver Version: 430.64  CUDA Version: 10.1\nconda installed cudatoolkit version 11.3",
    ),
    (
        "driver_too_old",
        "RuntimeError: The NVIDIA driver on your system is too old (found version 11040). Please update",
    ),
    ("driver_too_old", "RuntimeError: CUDA error: the provided PTX was compiled with an unsupported toolchain."),
    (
        "driver_too_old",
        "docker: Error response from daemon: nvidia-container-cli: requirement error: unsatisfied condition: "
        "cuda>=12.2, please update your driver to a newer version, or use an earlier cuda container: unknown.",
    ),
    (
        "driver_too_old",
        "cudaGetDeviceCount returned 35 -> CUDA driver version is insufficient for CUDA runtime version. Result = FAIL",
    ),
    (
        "driver_too_old",
        "PyTorch version: 2.6.0+cu124\nCUDA used to build PyTorch: 12.4\nIs CUDA available: False\n"
        "GPU models and configuration: GPU 0: NVIDIA A100\nNvidia driver version: 470.161.03\n",
    ),
    ("driver_library_mismatch", "nvmlInit: Driver/library version mismatch\nNVML library version: 550.120"),
    (
        "driver_library_mismatch",
        "[  912.1] NVRM: API mismatch: the client has the version 550.120, but\n"
        "NVRM: this kernel module has the version 550.90.07.  Please\nNVRM: make sure that this kernel module and all",
    ),
    ("container_lost_gpu_cgroup", "root@4f2a:/app# nvidia-smi\nFailed to initialize NVML: Unknown Error"),
    (
        "container_lost_gpu_cgroup",
        "After a few hours the pod loses the GPU: torch says 'CUDA unknown error', nvidia-smi in the container says\n"
        "Failed to initialize NVML: Unknown Error. On the node everything works. systemctl daemon-reload triggers it.",
    ),
    (
        "container_toolkit_missing",
        'docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].',
    ),
    ("container_toolkit_missing", "Error response from daemon: unknown or invalid runtime name: nvidia"),
    (
        "container_toolkit_missing",
        "ERROR: for trainer  Cannot create container: Error response from daemon: failed to create task: "
        'exec: "nvidia-container-runtime-hook": executable file not found in $PATH',
    ),
    (
        "container_without_gpu_access",
        "WARNING: The NVIDIA Driver was not detected.  GPU functionality will not be available.\n"
        "   Use the NVIDIA Container Toolkit to start this container with GPU support",
    ),
    (
        "container_without_gpu_access",
        "$ docker run --rm -v $PWD:/w pytorch/pytorch python -c 'import torch; print(torch.cuda.is_available())'\n"
        "/opt/conda/lib/python3.10/site-packages/torch/cuda/__init__.py:107: UserWarning: CUDA initialization: Found no "
        "NVIDIA driver on your system.\nFalse\n$ nvidia-smi\n| NVIDIA-SMI 535.54.03 Driver Version: 535.54.03 |",
    ),
    ("device_permission_denied", "Failed to initialize NVML: Insufficient Permissions"),
    (
        "device_permission_denied",
        "$ ls -l /dev/nvidia0\ncrw-rw---- 1 root vglusers 195, 0 Mai  3 10:11 /dev/nvidia0\n>>> torch.cuda.is_available()\nFalse",
    ),
    (
        "device_permission_denied",
        'Unable to open /dev/kfd read-write: Permission denied\nuser is not member of "render" group',
    ),
    (
        "fabric_manager_not_running",
        "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized",
    ),
    (
        "fabric_manager_not_running",
        "cuInit failed with CUDA_ERROR_SYSTEM_NOT_READY on our HGX H100 node, 8 GPUs in nvidia-smi",
    ),
    ("libcuda_mismatch_803", "Error 803: system has unsupported display driver / cuda driver combination"),
    ("forward_compat_on_consumer_gpu", "Error 804: forward compatibility was attempted on non supported HW"),
    (
        "mps_daemon_unreachable",
        "CUDA error 805: MPS client failed to connect to the MPS control daemon or the MPS server",
    ),
    (
        "uvm_broken_after_suspend",
        "Since I closed the lid of my laptop and woke it up again: UserWarning: CUDA initialization: CUDA unknown error",
    ),
    ("uvm_broken_after_suspend", "works after reboot, but after suspend: cudaErrorUnknown (999), nvidia-smi is fine"),
    (
        "nvidia_uvm_missing",
        "$ ls /dev/nvidia*\n/dev/nvidia0 /dev/nvidiactl\nls: cannot access '/dev/nvidia-uvm': No such file or directory",
    ),
    ("nvidia_uvm_missing", "CUDA unknown error; it works after: sudo nvidia-modprobe -u -c=0"),
    (
        "nouveau_loaded",
        "01:00.0 VGA compatible controller: NVIDIA GA104\n\tKernel driver in use: nouveau\n\tKernel modules: nouveau",
    ),
    ("nouveau_loaded", "You must disable nouveau first: nouveau conflicts with the NVIDIA driver"),
    ("nouveau_loaded", "$ lsmod | grep -e nvidia -e nouveau\nnouveau              2306048  4\nnvidia-smi has failed"),
    ("secure_boot_blocks_module", "modprobe: ERROR: could not insert 'nvidia': Key was rejected by service"),
    (
        "secure_boot_blocks_module",
        "$ sudo modprobe nvidia\nmodprobe: ERROR: could not insert 'nvidia': Required key not available",
    ),
    (
        "vgpu_unlicensed",
        "    vGPU Software Licensed Product\n        Product Name : NVIDIA RTX Virtual Workstation\n        License Status : Unlicensed (Restricted)",
    ),
    ("wsl_windows_or_kernel_too_old", "Failed to initialize NVML: GPU access blocked by the operating system"),
    (
        "wsl_windows_or_kernel_too_old",
        "Ubuntu on WSL, uname -r: 4.19.128-microsoft-standard\n>>> torch.cuda.is_available()\nFalse",
    ),
    (
        "wsl_wrong_driver_inside",
        "WSL2, Windows 11. I ran sudo apt install nvidia-driver-535 and now nvidia-smi says\n"
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
    ),
    ("mig_enabled_no_instance", "| MIG devices: |\n|  No MIG devices found  |\n>>> torch.cuda.is_available()\nFalse"),
    ("compute_mode_exclusive", "RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable"),
    (
        "driver_missing_or_not_loaded",
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA "
        "driver is installed and running.",
    ),
    (
        "driver_missing_or_not_loaded",
        "modprobe: FATAL: Module nvidia not found in directory /lib/modules/6.8.0-45-generic",
    ),
]


@pytest.mark.parametrize(("cause", "text"), CASES)
def test_the_words_of_a_broken_driver_name_its_cause(cause, text):
    assert first(text) == cause, report_of(text).findings


@pytest.mark.parametrize(
    "text",
    [
        "PyTorch version: 2.7.1+cu126\nCUDA used to build PyTorch: 12.6\nIs CUDA available: True\n"
        "GPU models and configuration: GPU 0: NVIDIA L4\nNvidia driver version: 580.65.06\nCUDA runtime version: 11.8.89",
        "| NVIDIA-SMI 580.65.06    Driver Version: 580.65.06    CUDA Version: 13.0 |\n"
        "|   0  NVIDIA A10            On  | 00000000:00:1E.0 Off |                    0 |\n"
        "|  0%   28C    P8    15W / 150W |      0MiB / 23028MiB |      0%      Default |",
    ],
)
def test_a_newer_driver_and_another_toolkit_are_no_fault(text):
    assert report_of(text).verdict == "healthy", ids(text)


def test_a_wrapped_quoted_and_coloured_paste_says_the_same():
    plain = "RuntimeError: The NVIDIA driver on your system is too old (found version 11040)."
    pasted = (
        "> \x1b[31mRuntimeError: The NVIDIA driver on\r\n> your system is too\r\n> old (found version 11040).\x1b[0m"
    )
    assert first(plain) == first(pasted) == "driver_too_old"


def test_the_remedy_speaks_the_dialect_of_the_evidence():
    said = "docker: nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.2\nRocky Linux 9"
    (finding, *_) = report_of(said).findings
    assert "host" in finding.fix[0].say
    wsl = report_of("WSL2: The NVIDIA driver on your system is too old (found version 11040)").findings[0]
    assert "Windows" in wsl.fix[0].say


def test_a_driver_that_survived_a_kernel_update_is_no_fault():
    text = "The nvidia driver works after the kernel update, training runs on the RTX 4090: step 10 loss 1.2"
    assert report_of(text).verdict == "healthy"


@pytest.mark.parametrize(
    "text",
    [
        "nvidia-smi has failed. Secure Boot is off and nouveau is also disabled.",
        "nvidia-smi: No devices were found. nouveau is already blacklisted, and no longer loaded",
        "nouveau is not loaded, lsmod shows only nvidia",
    ],
)
def test_what_is_out_of_the_way_already_is_no_cause(text):
    named = [finding.id for finding in report_of(text).findings if finding.confidence > 0.3]
    assert not {"nouveau_loaded", "secure_boot_blocks_module"} & set(named)
