from __future__ import annotations

import pytest

from tests.doctor.causes.judge import first, report_of

CASES = [
    ("dataloader_bottleneck", "py-spy says that half of the training time is spent in the dataloader (6 workers)"),
    ("dataloader_bottleneck", "GPU utilization jumps between 0% and 80% while training; I think it waits for the next batch, num_workers is 12"),
    ("dataloader_bottleneck", "训练的时候GPU利用率很低，数据加载要等很久"),
    ("collate_in_main_process", "torch training is slow, the profiler shows that my collate_fn takes 0.4 s for each batch"),
    ("collate_in_main_process", "py-spy on my training: 70 % of the main process is in default_collate, 4 loader workers, GPU at 30 %"),
    ("dataloader_bottleneck", "py-spy top of the trainer: 88% _try_get_data (torch/utils/data/dataloader.py)"),
    ("pageable_copies", "Each step has Memcpy HtoD (Pageable -> Device) in the trace, 25% of the time, and no kernels meanwhile"),
    ("communication_bound", "torch training on two machines is slower than on one, ncclAllReduce has 70 % of the step"),
    ("slow_storage", "Training data on NFS. First epoch 90 min, second epoch 8"),
    ("vram_spill_to_system_memory", "Windows 11, 8 GB card: dedicated memory is at 7.9/8.0 GB and training crawls at 45 s/it, no error at all"),
]  # fmt: skip


@pytest.mark.parametrize(("cause", "text"), CASES)
def test_slowness_that_is_told_in_words_is_named(cause, text):
    assert first(text) == cause, [(f.id, f.confidence) for f in report_of(text).findings]


def test_a_narrower_cause_stands_before_the_general_one():
    text = "GPU utilization drops to 0% all the time, it waits for data; DataLoader(num_workers=0)"
    assert first(text) == "too_few_workers"


def test_a_full_card_that_fails_did_not_spill():
    text = "Windows 10, the GPU memory is full, everything is very slow, then CUDA out of memory"
    assert "vram_spill_to_system_memory" not in [f.id for f in report_of(text).findings if f.severity != "info"]


def test_a_busy_gpu_is_no_finding():
    text = "Training with 8 loader workers: GPU-Util 97 %, 1.9 it/s, epoch 40 min. What do you get on your card?"
    assert report_of(text).verdict == "healthy"
    assert not [f for f in report_of(text).findings if f.severity != "info"]


@pytest.mark.parametrize(
    "text",
    [
        "torch trace: Memcpy HtoD (Pinned -> Device) 2 %, GPU busy 98 %, ncclAllReduce 4 % of the step. Looks good?",
        "py-spy of a training: 3 % _try_get_data, the rest in forward and backward",
    ],
)
def test_a_trace_without_loss_is_no_finding(text):
    assert not [f.id for f in report_of(text).findings if f.severity != "info"]


WAITING = [
    "in training I see a low volatile GPU-Util, the dataloader has two threads",
    "the utilization of my GPU is low, only 15 %, with num_workers=4",
    "training spends most time on CPU (augmentation, preprocessing), the GPU utility is too low",
    "while training, GPU utilization often goes to zero and a few seconds later back to 90 %",
]


@pytest.mark.parametrize("text", WAITING)
def test_a_device_that_waits_points_at_its_input(text):
    assert first(text) == "dataloader_bottleneck"


def test_a_device_that_stands_still_in_a_hang_does_not_wait_for_data():
    findings = report_of("training is stuck, GPU utilization drops to 0 and stays there").findings
    assert "dataloader_bottleneck" not in [f.id for f in findings if f.severity != "info"]
