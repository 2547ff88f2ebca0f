from __future__ import annotations

import pytest

from tests.doctor.causes.judge import first, ids, report_of

CASES = [
    ("gpu_fallen_off_bus", "Every few days one of the GPUs goes missing during training, only a reboot brings it back"),
    ("gpu_fallen_off_bus", "In the middle of a run my graphics card disappears. I have to restart the machine to get it back."),
    ("gpu_fallen_off_bus", "训练几个小时显卡突然消失，只能重启"),
    ("kernel_launch_timeout", "The screen goes black for a second, then CUDA error: unknown error. Smaller images work."),
    ("kernel_launch_timeout", "With a larger grid my display freezes and the program stops with a cuda error 999"),
    ("mig_enabled_no_instance", "After each reboot the MIG instances are gone, torch has nothing to compute on"),
    ("mig_enabled_no_instance", "I set up MIG, and with each reboot it is back to the default"),
    ("mig_enabled_no_instance", "We enabled MIG on the A100, and since then device_count() is 0"),
    ("mig_enabled_no_instance", "MIG mode is enabled on all cards but no geometry exists yet, so the plugin does not advertise anything"),
    ("compute_mode_exclusive", "The GPUs are in exclusive compute mode, and the second training process cannot start"),
    ("compute_mode_exclusive", "Cards are set to Process Exclusive; two users at once, and the other fails"),
    ("container_lost_gpu_cgroup", "The container sees the GPU at first. After some hours nvidia-smi says unknown error; restarting the container helps."),
    ("container_lost_gpu_cgroup", "Our pod suddenly loses its GPU, on the host all works"),
    ("container_without_gpu_access", "I put the nvidia driver into the docker image with apt install nvidia-driver-470, "
     "still torch.cuda.is_available() is False"),
    ("device_permission_denied", "As a regular user torch finds no GPU, root has it"),
    ("device_permission_denied", "non-root users cannot access the GPU in our image"),
    ("nouveau_loaded", "The kernel log is full of nouveau messages, and the NVIDIA installer aborts"),
    ("wsl_wrong_driver_inside", "WSL2. torch.cuda.is_available() True, and numba: Call to cuInit results in CUDA_ERROR_NO_DEVICE"),
    ("wsl_windows_or_kernel_too_old", "Since the update /dev/dxg is missing in my WSL"),
    ("wsl_windows_or_kernel_too_old", "I compiled my own kernel for WSL; now cuda is not found"),
]  # fmt: skip

SILENT = [
    ("gpu_fallen_off_bus", "After a kernel update and a reboot the GPU is not detected, sometimes"),
    ("gpu_fallen_off_bus", "During training the loss disappears into NaN; I restart the script from the checkpoint"),
    ("gpu_fallen_off_bus", "The docker container's GPU goes missing now and then until I restart it"),
    ("kernel_launch_timeout", "Black images come out of the model on a larger resolution, loss 0.3"),
    ("kernel_launch_timeout", "The screen goes black, the PC reboots; cuda error in the log before, larger batch"),
    ("mig_enabled_no_instance", "MIG 1g.10gb Device 0: (UUID: MIG-1a2b3c4d-...) is enabled, one job cannot see the second slice"),
    ("mig_enabled_no_instance", "migrating the repository: after a restart the cache is gone"),
    ("compute_mode_exclusive", "mutually exclusive options: two users cannot set both, error"),
    ("container_lost_gpu_cgroup", "In docker I run out of memory: after some hours the GPU is unavailable, out of memory"),
    ("container_lost_gpu_cgroup", "docker run --gpus all works, after some hours the epoch is done, accuracy 0.9"),
    ("device_permission_denied", "As a regular user I cannot talk to docker.sock, no GPU question"),
    ("nouveau_loaded", "I blacklisted nouveau; the training fails with a shape error"),
    ("wsl_wrong_driver_inside", "WSL2. torch.cuda.is_available() True, training works"),
    ("wsl_windows_or_kernel_too_old", "We compiled our own CUDA kernel on Linux; the result is not found in the cache"),
]  # fmt: skip


@pytest.mark.parametrize(("cause", "text"), CASES)
def test_what_people_tell_of_a_gpu(cause, text):
    assert first(text) == cause, [(f.id, f.confidence) for f in report_of(text).findings]


@pytest.mark.parametrize(("cause", "text"), SILENT)
def test_the_same_words_of_something_else(cause, text):
    assert cause not in [f.id for f in report_of(text).findings if f.severity != "info"], ids(text)
