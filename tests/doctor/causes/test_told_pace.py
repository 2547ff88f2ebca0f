from __future__ import annotations

import pytest

from tests.doctor.causes.judge import first, report_of

CASES = [
    # beside others on one card
    ("gpu_shared", "My training needs 40 s per epoch. When a second script runs on the same GPU each of them needs 95 s, it is slow then"),
    ("gpu_shared", "Two jobs share one GPU here and both trainings slow down a lot, alone each is fast"),
    ("gpu_shared", "训练很慢，因为别人也在同一张卡上跑程序"),
    ("gpu_shared", "When I start the training several times the time per epoch doubles, TITAN Xp, two minutes when it is alone"),
    # the CPU alone is faster
    ("launch_bound", "My keras model has two Dense(16) layers and training is slower on the GPU than on the CPU"),
    ("launch_bound", "The small LSTM trains faster on the CPU (3 s) than on the GPU (9 s), why?"),
    ("launch_bound", "Profile of my training step: step time: 40.2 ms, GPU busy time: 6.1 ms, 900 kernels and 900 launches, slow"),
    ("launch_bound", "Training is slow: kernel launch overhead is 60 % of the step according to the trace"),
    ("launch_bound", "I train a PPO agent with a small policy, GPU utilization is only 6 % and it needs days"),
    ("launch_bound", "I use DQN on a gym environment and only get about 12% utilization of my GPU"),
    # every new shape
    ("cudnn_benchmark_variable_shapes", "Training my conv net on images of different sizes is slow, with a fixed size it is fast; it seems that it does extra work for each new size"),
    ("cudnn_benchmark_variable_shapes", "TF_CUDNN_USE_AUTOTUNE=0 makes the training of my speech model with variable lengths much less slow"),
    ("cudnn_benchmark_variable_shapes", "With cudnn.benchmark on and random input sizes every step of the training is slow"),
    ("cudnn_benchmark_variable_shapes", "Slow audio model with variable length batches in training; cudnn.enabled = False makes it better"),
    # what torch 1.12 switched off
    ("tf32_off", "An epoch took 20 min with torch 1.11 and takes twice as long since I use torch 1.13, float32 training on an A100"),
    ("tf32_off", "Why is float32 training on the A100 not faster than on the V100? Same batch, same speed"),
    # memory that goes to the host and back
    ("vram_spill_to_system_memory", "Windows 11, RTX 4070 12 GB: after 300 steps the iterations take longer and GPU power drops from 180 W to 70 W"),
    ("vram_spill_to_system_memory", "LoRA on a 3060: VRAM is close to 100 %, RAM at 60 %, and it takes 7 minutes per iteration, epically slow"),
    ("vram_spill_to_system_memory", "sdxl lora training runs at 2.1s/it and then suddenly at 41s/it, a restart helps"),
    ("vram_spill_to_system_memory", "Windows 10, 训练很慢, 专用显存 7.9 GB, 共享显存 6 GB 一直在用"),
]  # fmt: skip


@pytest.mark.parametrize(("cause", "text"), CASES)
def test_what_is_compared_names_the_cause_of_the_slowness(cause, text):
    assert first(text) == cause, [(f.id, f.confidence, f.severity) for f in report_of(text).findings]


@pytest.mark.parametrize(
    "text",
    [
        "Several people train on this server, each on their own GPU, and nobody complains. Which scheduler do you use?",
        "Other jobs run on this GPU at night. Training works. Where do I set the seed?",
        "The GPU trains this model 30 times faster than the CPU did. Thank you!",
        "I train with images of different sizes, padded to the largest of the batch. Is that what the paper did?",
        "We moved from torch 1.11 to torch 2.1, training works as before. Do I have to convert the checkpoints?",
        "Windows 11, RTX 4090 24 GB: training loss drops after 300 steps, power is 350 W. Is that learning rate right?",
        "Training on 8 GPUs with torchrun: another process on each GPU is the NCCL watchdog thread, is that right?",
    ],
)
def test_a_comparison_in_which_nothing_is_slow_is_no_finding(text):
    assert not [(f.id, f.evidence) for f in report_of(text).findings if f.severity != "info"]


def test_a_card_that_is_busy_all_the_time_is_information_only():
    report = report_of("Is this training speed normal? My GPU utilization is 99 % on a single RTX 2060, 2.1 it/s")
    assert [(f.id, f.severity) for f in report.findings[:1]] == [("compute_bound", "info")]
    assert report.verdict == "healthy"


@pytest.mark.parametrize(
    ("cause", "text"),
    [
        ("gpu_shared", "another process on the same GPU and training slows down, then CUDA out of memory"),
        ("tf32_off", "fp16 training takes twice as long with torch 2.0 as with torch 1.11"),
        (
            "launch_bound",
            "PPO training, GPU utilization is only 6 %: OMP_NUM_THREADS is not set and 64 threads per process run",
        ),
        ("vram_spill_to_system_memory", "Ubuntu, LoRA: VRAM is close to 100 % and it takes 7 minutes per iteration"),
        ("vram_spill_to_system_memory", "sdxl lora training runs at 2.1s/it and then suddenly at 2.9s/it"),
        ("tf32_off", "With bf16 autocast the A100 is not faster than the V100 in my training"),
        ("launch_bound", "data loading with num_workers=0 makes training slower on the GPU than on the CPU"),
        ("vram_spill_to_system_memory", "Ubuntu 22.04, RTX 3060 12 GB: iterations take longer and GPU power drops"),
        ("cudnn_benchmark_variable_shapes", "torch.compile: each new input shape is slow at first on my conv net"),
    ],
)
def test_a_circumstance_that_says_otherwise_takes_the_cause_away(cause, text):
    assert cause not in [f.id for f in report_of(text).findings if f.severity != "info"]
