from __future__ import annotations

import pytest

from tests.doctor.causes.judge import first, report_of

CASES = [
    ("host_oom_killed", "the program only prints 'Killed' after it loaded the images; 64 GB of RAM, train.py"),
    ("host_oom_killed", "start.sh: line 12: 4471 Killed python train.py"),
    ("gpu_sync_each_step", "torch.cuda.synchronize(device) after each batch makes training slower by a quarter"),
    ("slow_storage", "reading the images from an external USB drive, an epoch takes 2 hours"),
    ("cgroup_cpu_limit", "docker run --cpus 2: os.cpu_count() sees 64 cores, training is slow and throttled"),
    ("host_oom_killed", "torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal SIGKILL\nexitcode: -9"),
    ("host_oom_killed", "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 18.6 GiB for an array with shape (50000, 50000)"),
    ("host_oom_killed", "Reason: OOMKilled, Exit Code: 137"),
    ("shm_too_small", "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm)."),
    ("too_many_open_files", "RuntimeError: unable to open shared memory object </torch_91_7> in read-write mode: Too many open files (24)"),
    ("tf32_off", "TensorFloat32 tensor cores for float32 matrix multiplication available but not enabled."),
]  # fmt: skip


@pytest.mark.parametrize(("cause", "text"), CASES)
def test_what_the_host_does(cause, text):
    assert first(text) == cause, [(f.id, f.confidence) for f in report_of(text).findings]
