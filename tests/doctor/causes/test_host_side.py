from __future__ import annotations

import pytest

from tests.doctor.causes.judge import first, ids, report_of

CASES = [
    ("host_oom_killed", "the program only prints 'Killed' after it loaded the images; 64 GB of RAM, train.py"),
    ("host_oom_killed", "start.sh: line 12: 4471 Killed python train.py"),
    ("gpu_sync_each_step", "torch.cuda.synchronize(device) after each batch makes training slower by a quarter"),
    ("slow_storage", "reading the images from an external USB drive, an epoch takes 2 hours"),
    ("cgroup_cpu_limit", "docker run --cpus 2: os.cpu_count() sees 64 cores, training is slow and throttled"),
    ("cgroup_cpu_limit", "docker run --cpu-period=100000 --cpu-quota=50000: torch trains, and is slow as half a core"),
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


IN_WORDS = [
    ("checkpoint_too_often", "saving the checkpoint takes 40 s and an epoch of training 90 s"),
    ("checkpoint_too_often", "training pauses every 500 steps for a minute, the log says it is saving then"),
    ("cpu_oversubscription", "while I train on the GPU, top shows 98% on all 64 available cores; is that normal?"),
    ("slow_storage", "an epoch takes three hours, it is slow since the images are in the cloud and there is no local disk for the dataset"),
    ("slow_storage", "training data on a spinning disk: the GPU is mostly at 0-2 % and iowait is high"),
    ("checkpoint_too_often", "training a LoRA it takes half an hour to save each checkpoint"),
    ("cgroup_cpu_limit", "torch takes its number of threads from the cores of the node, not of the pod"),
    ("host_oom_killed", "after three epochs of training the host memory is used up and the job ends"),
    ("gpu_sync_each_step", "py-spy shows that each call of item() synchronizes with the device, in every step"),
    ("cudnn_benchmark_variable_shapes", "inputs of varying sizes with cudnn_benchmark = True, the iterations are slow"),
]  # fmt: skip


@pytest.mark.parametrize(("cause", "text"), IN_WORDS)
def test_the_part_of_the_host_is_understood_from_a_sentence(cause, text):
    assert first(text) == cause


UNSUSPICIOUS = [
    ("checkpoint_too_often", "Epoch 3: 100%| 200/200 [00:50<00:00, 4.0it/s, loss=0.4]\nsaving model to 'runs/epoch=3.ckpt' as top 1"),
    ("checkpoint_too_often", "Saving model checkpoint to out/checkpoint-1500\n{'loss': 0.31, 'epoch': 2.0}"),
    ("checkpoint_too_often", "Train Epoch: 1 [59520/60000 (99%)] Loss: 0.08\nsaving the model took 0.4 s"),
    ("cpu_oversubscription", "DataLoader(num_workers=16) decodes and augments: 99% on all 16 cores while training"),
]  # fmt: skip


@pytest.mark.parametrize(("cause", "text"), UNSUSPICIOUS)
def test_ordinary_work_of_the_host_is_not_accused(cause, text):
    assert cause not in ids(text)


def test_a_worker_that_ends_in_a_container_had_too_little_shared_memory():
    text = "Training in docker: RuntimeError: DataLoader worker (pid(s) 17) exited unexpectedly"
    assert first(text) == "shm_too_small"
    assert first(text.replace("in docker", "at home")) == "host_oom_killed"


def test_a_disk_that_was_ruled_out_is_not_accused():
    text = "Training is slow. The images lie on an SSD, the bottleneck is not the hard drive, the GPU waits anyway"
    assert "slow_storage" not in [f.id for f in report_of(text).findings if f.severity != "info"]


def test_recomputed_activations_are_no_checkpoints_on_disk():
    text = "With activation checkpointing the training gets slower, checkpointing takes longer than I thought"
    assert "checkpoint_too_often" not in [f.id for f in report_of(text).findings if f.severity != "info"]
