from __future__ import annotations

import pytest

from tests.doctor.causes.judge import first, ids, report_of

CASES = [
    ("driver_missing_or_not_loaded", "In docker nothing works. On the host: modprobe: FATAL: Module nvidia not found in directory /lib/modules/6.1"),
    ("driver_missing_or_not_loaded", "My nvidia dkms module vanishes with each dnf update, I build it by hand every time"),
    ("driver_missing_or_not_loaded", "akmod-nvidia is not built any more after a kernel upgrade"),
    ("no_gpu_on_machine", "colab says that no GPUs were allocated: No CUDA runtime is found, using CUDA_HOME='/usr/local/cuda'"),
    ("no_gpu_on_machine", "the collab asks for an Nvidia driver today"),
    ("no_gpu_on_machine", "My VPS has no video card, torch: Found no NVIDIA driver on your system"),
    ("container_without_gpu_access", "I start ./model.sif and the program inside has no GPUs"),
    ("container_without_gpu_access", "devcontainer in my editor: torch.cuda.is_available() is False, the host has an RTX 3060"),
    ("gpu_hardware_fault", "CUDNN_STATUS_EXECUTION_FAILED only on GPU 3, the others work fine for days"),
    ("driver_too_old", "nvidia-smi says CUDA Version: 10.1, I have torch 2.0 cu118 and torch.cuda.is_available() is False"),
    ("gpu_fallen_off_bus", "nvidia-smi shows only 7 of our 8 GPUs since yesterday, one is missing"),
    ("gpu_fallen_off_bus", "My RTX card is gone, it is not in the device manager nor in the BIOS"),
    ("gpu_hardware_fault", "one of our GPUs on node 7 does not behave as it should, please have a look"),
    ("gpu_fallen_off_bus", "Unable to determine the device handle, says nvidia-smi"),
    ("wsl_windows_or_kernel_too_old", "WSL2: nvc.c:274] dxcore initialization failed, continuing assuming a non-WSL environment"),
    ("wsl_wrong_driver_inside", "WSL: numba says Call to cuInit results in CUDA_ERROR_NO_DEVICE"),
    ("fabric_manager_not_running", "On the DGX nvidia-smi works and lists all cards, and CUDA does not initialize"),
    ("jetson_generic_wheel", "On my Jetson pip install -r requirements.txt does not find torch==1.9"),
    ("jetson_generic_wheel", "How can I install pytorch on an AGX Xavier with python 3.9?"),
    ("container_without_gpu_access", "docker run --rm me/tool:latest list\n2025 CUDA test failed\n2025 No GPUs detected"),
    ("nouveau_loaded", "NVRM: GPU 0000:01:00.0 is already bound to NovaCore."),
    ("mps_daemon_unreachable", "[2024-01-01 Control    73] Server encountered a fatal exception. Shutting down"),
    ("fabric_manager_not_running", "cuda init fails with error 802 on our H100 node"),
    ("container_toolkit_missing", "docker info shows only runc, and docker run --gpus all stops with an error"),
]  # fmt: skip

SILENT = [
    ("driver_missing_or_not_loaded", "After a kernel upgrade the nvidia module was built again by dkms, torch.cuda.is_available() True"),
    ("driver_missing_or_not_loaded", "I updated the model's attention module and deleted the old checkpoint"),
    ("no_gpu_on_machine", "On colab my T4 trains well: | NVIDIA-SMI 535.104 | no GPU limits so far, step 3 loss 0.2"),
    ("container_without_gpu_access", "singularity run --nv model.sif train.py: 3 no gpus idle, step 9 loss 0.1"),
    ("gpu_hardware_fault", "I only use GPU 0 and it crashes with out of memory, others work fine"),
    ("gpu_hardware_fault", "only on cuda:0 there is less memory, others are fine"),
    ("driver_too_old", "nvidia-smi says CUDA Version: 12.4, torch 2.5 cu121 and torch.cuda.is_available() is False"),
    ("gpu_fallen_off_bus", "I did not change a setting in the BIOS for secure boot, the GPU works"),
    ("gpu_hardware_fault", "one of the GPUs is not used in my training, the other is"),
    ("gpu_fallen_off_bus", "The job uses 4 of the 8 GPUs of the node with CUDA_VISIBLE_DEVICES, one checkpoint is missing"),
    ("gpu_fallen_off_bus", "We train on 8 of 8 GPUs of a node, since this morning at 3 it/s"),
    ("wsl_windows_or_kernel_too_old", "Debian: nvc.c:274] dxcore initialization failed, continuing assuming a non-WSL environment"),
    ("wsl_wrong_driver_inside", "Ubuntu server: Call to cuInit results in CUDA_ERROR_NO_DEVICE"),
    ("fabric_manager_not_running", "On the desktop nvidia-smi works, and CUDA does not initialize"),
    ("fabric_manager_not_running", "On the DGX nvidia-smi works and CUDA initializes, NVLink gives 400 GB/s"),
    ("jetson_generic_wheel", "On a Jetson our torch wheel works: torch.cuda.is_available() True, other packages could not be found"),
    ("container_without_gpu_access", "docker run --gpus all --rm me/tool:latest list\nNo GPUs detected in the config file, GPU 0 is used"),
    ("nouveau_loaded", "The amazon nova model is already loaded, training at 3 it/s"),
    ("fabric_manager_not_running", "GPU training: 802 images per second, 3 errors in the labels"),
    ("mps_daemon_unreachable", "httpd: Server 95 exited with status 1, the training goes on"),
]  # fmt: skip


@pytest.mark.parametrize(("cause", "text"), CASES)
def test_what_was_set_up_and_what_is_missing(cause, text):
    assert first(text) == cause, [(f.id, f.confidence) for f in report_of(text).findings]


@pytest.mark.parametrize(("cause", "text"), SILENT)
def test_the_same_words_of_something_else(cause, text):
    assert cause not in [f.id for f in report_of(text).findings if f.severity != "info"], ids(text)


def test_what_it_mostly_is_when_nothing_says_why():
    assert set(ids("Everything was fine yesterday. RuntimeError: No CUDA GPUs are available")[:3]) == {
        "no_gpu_on_machine",
        "driver_missing_or_not_loaded",
        "visible_devices_hides_gpu",
    }
