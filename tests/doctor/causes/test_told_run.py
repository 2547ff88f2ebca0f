from __future__ import annotations

import pytest

from tests.doctor.causes.judge import first, report_of

CASES = [
    # cards that speak to each other stop
    ("nccl_p2p_hang", "Training with one GPU works fine. With two GPUs it hangs before the first iteration, nvidia-smi shows 100 % on both."),
    ("nccl_p2p_hang", "model = DataParallel(model); training never starts on 2 gpus, both GPUs at 100%, on a single card it runs well"),
    # and so do ranks of which one has no more data
    ("ddp_uneven_inputs", "DDP training gets stuck at the end of the first epoch: some GPUs stay at 100 % and the others at 0 %"),
    ("ddp_uneven_inputs", "On 4 gpus training freezes after the last batch when one rank finishes earlier; NCCL_P2P_DISABLE=1 does not help"),
    # workers that wait for each other
    ("job_hung", "My training gets stuck in next(iter(loader)) as soon as num_workers is 2 or more; with num_workers=0 it works but is slow"),
    # a machine that goes down
    ("gpu_hardware_fault", "While training on my RTX 3090 the whole computer suddenly reboots, no log"),
    ("gpu_hardware_fault", "as soon as the GPU is used for training the system will freeze up and then crash hard"),
    ("gpu_hardware_fault", "The monitor goes black and the fans of the video card spin at full speed while I train a GAN"),
    ("gpu_hardware_fault", "训练的时候电脑会自动重启，显卡是RTX 3080"),
    # a device that waits
    ("dataloader_bottleneck", "In training the GPU is at 0 % most of the time, it is waiting for data, is that normal?"),
    ("dataloader_bottleneck", "why is the gpu utilization so low when I train this network? It jumps between 3 % and 40 %"),
    ("launch_bound", "I train with a batch size of 1 and GPU utilization is only 12 %, why?"),
    ("launch_bound", "torch profile of a rollout of my small policy: the GPU is mostly idle, very low utilization"),
    ("launch_bound", "Training of my RL agent is CPU-bound, the GPU is hardly faster than the old GTX 1060"),
    # a run that stops with idle devices waits for its host
    ("job_hung", "Training on 4 GPUs suddenly stops in the middle of an epoch, no more output, GPU utilization stays at 0 %"),
    # what warms up, and what tires
    ("slow_storage", "In the first epoch training takes 20 s per step, from the second epoch on it is normal, 1 s. Why?"),
    ("slow_storage", "Epoch 0: 100%|##| 900/900 [30:12<00:00, 2.0s/it]\nEpoch 1: 100%|##| 900/900 [11:00<00:00]\nEpoch 2: 100%|##| 900/900 [04:10<00:00]"),
    ("thermal_throttle", "Training starts with 9 it/s, after about an hour the speed is 6 it/s and it gets slower, a restart helps"),
    ("thermal_throttle", "The time of each training iteration gradually increases: 0.2 s in the beginning, 0.9 s half an hour later"),
    # what one place has and the other has not
    ("no_gpu_on_machine", "On the login node:\n>>> torch.cuda.is_available()\nTrue\nin the job\nsrun python -c 'import torch; print(torch.cuda.is_available())'\nFalse"),
    ("visible_devices_hides_gpu", "In a shell:\n>>> torch.cuda.is_available()\nTrue\nThe same code inside train.py\nprint(torch.cuda.is_available())\nFalse"),
    ("visible_devices_hides_gpu", "@ray.remote(num_cpus=2) tasks say torch.cuda.is_available() = False although the node has GPUs"),
]  # fmt: skip


@pytest.mark.parametrize(("cause", "text"), CASES)
def test_what_is_told_of_a_run_names_its_cause(cause, text):
    assert first(text) == cause, [(f.id, f.confidence, f.severity) for f in report_of(text).findings]


@pytest.mark.parametrize(
    "text",
    [
        "Please reboot the machine after you install the driver, then start training on the GPU.",
        "I had to restart my computer for the update, now training on the RTX 3090 works. Which batch size is best?",
        "Training on 8 GPUs finishes after the last batch of each epoch as it should, both loss and accuracy look good.",
        "GPU utilization is 97 % during training, dataloader has 8 workers. How long should an epoch take?",
        "torch.cuda.is_available() is True and torch.backends.mps.is_available() is False, training works.",
        "tqdm: 900/900 [10:12<00:00, 1.4it/s]\n900/900 [10:10<00:00, 1.4it/s]\n900/900 [10:11<00:00, 1.4it/s]",
        "The learning rate gradually increases during warm-up, then the training loss falls. Is 2000 steps enough?",
    ],
)
def test_a_run_that_is_well_is_no_finding(text):
    assert not [f.id for f in report_of(text).findings if f.severity != "info"]


def test_a_host_without_memory_is_not_taken_for_a_defect():
    text = (
        "During training with CUDA the RAM of my machine gets full and then the whole computer freezes up and crashes"
    )
    assert first(text) != "gpu_hardware_fault"


def test_a_run_that_stops_on_one_card_has_no_peer():
    text = "Training on my GPU gets stuck at the start, 100 % utilization on the GPU"
    assert "nccl_p2p_hang" not in [f.id for f in report_of(text).findings if f.severity == "broken"]
