from __future__ import annotations

import pytest

from tests.doctor.causes.judge import first, ids, report_of

CASES = [
    ("container_without_gpu_access", "$ docker run -it pytorch/pytorch ipython\nIn [2]: torch.cuda.is_available()\nOut[2]: False"),
    ("container_without_gpu_access", "在 docker 容器里 torch.cuda.is_available() 为 False"),
    ("container_toolkit_missing", "docker: Error response from daemon: failed to discover GPU vendor from CDI: no known GPU vendor found"),
    ("container_without_gpu_access", "podman run -it image\nRuntimeError: Found no NVIDIA driver on your system."),
    ("device_permission_denied", ">>> torch.cuda.is_available()\nFalse\n$ sudo python -c 'import torch; print(torch.cuda.is_available())'\nTrue"),
    ("device_permission_denied", "open('/dev/nvidiactl') failed: Permission denied"),
    ("wsl_wrong_driver_inside", "In WSL2 libcuda.so comes from libnvidia-compute-535, ldconfig -p shows /usr/lib/x86_64-linux-gnu/libcuda.so.1"),
    ("container_lost_gpu_cgroup", "Our pod runs for a week, then nvidia-smi says 'NVML init error: Unknown', a new pod works"),
]  # fmt: skip


@pytest.mark.parametrize(("cause", "text"), CASES)
def test_who_was_given_the_gpu(cause, text):
    assert first(text) == cause, [(f.id, f.confidence) for f in report_of(text).findings]


def test_a_container_that_was_given_the_gpu_is_no_fault():
    text = "docker run --gpus all image\n>>> torch.cuda.is_available()\nTrue\nstep 3 loss 2.1"
    assert report_of(text).verdict == "healthy", ids(text)
