"""Slow training by what people state of it: how much the GPU and the CPUs are used, where data lies, what a step takes."""

from __future__ import annotations

import pytest

from tests.doctor.causes.judge import first, report_of

SLOW = [
    ("slow_storage", "My images are on a mechanical drive, and training needs 5 hours per epoch, GPU below 20 %."),
    ("slow_storage", "数据集放在机械硬盘上，训练特别慢，GPU利用率只有10%左右。"),
    ("slow_storage", "Training from a mounted NAS folder is about 8 times slower than from the local SSD."),
    ("dataloader_bottleneck", "The GPU/CPU usage is both very low during training. What could be the reason?"),
    ("dataloader_bottleneck", "GPU utilization fluctuates between 5 and 98 % during training on a 2080 Ti."),
    ("dataloader_bottleneck", "Loading one batch takes 4.2 seconds, the forward and backward pass take 0.3 seconds."),
    ("dataloader_bottleneck", "从DataLoader里取一个batch要十几秒，模型前向只要0.2秒，怎么办？"),
    ("dataloader_bottleneck", "加载图片太慢了，GPU一直在等数据。"),
    (
        "decode_bound",
        "While training YOLO my GPU load is only around 30 % and the CPU load is 100 %, an i5 with 4 cores.",
    ),
    ("too_few_workers", "The training only uses one CPU core of 16, GPU util: 20%. Dataset with PIL and transforms."),
    (
        "cpu_oversubscription",
        "Four jobs on one node: 0.3 s per step alone, 1.9 s together. CPU load is 120, in libgomp.",
    ),
    (
        "communication_bound",
        "FSDP from 1 to 4 nodes: 11 s per step instead of 2.5 s. Connected with 25 GbE without RDMA.",
    ),
    ("communication_bound", "8 x 4090 without P2P, the gradient all-reduce takes 600 ms of each 900 ms step."),
    ("python_bound", "Training is slow; the step loops over the samples of the batch in a Python loop."),
    ("pinned_to_few_cpus", "Training is slow. os.sched_getaffinity(0) is {0} after the import of the library."),
]


@pytest.mark.parametrize(("cause", "text"), SLOW)
def test_figures_of_a_slow_training_name_its_cause(cause, text):
    assert first(text) == cause
    assert report_of(text).verdict != "healthy"


@pytest.mark.parametrize("text", [
    "Loading one batch takes 4 ms, the forward and backward pass take 0.3 seconds.",
    "the gradient all-reduce takes 30 ms of each 900 ms step",
])  # fmt: skip
def test_a_small_share_of_the_step_is_no_cause(text):
    assert first(text) == "none"


def test_a_gpu_that_is_fully_used_waits_for_nothing():
    report = report_of("Why would it take me a year on a GeForce RTX 3090, with its utilization almost 100%?")
    assert report.verdict == "healthy"
    assert [finding.id for finding in report.findings] == ["compute_bound"]


def test_two_nodes_are_not_guessed_where_one_gpu_is_spoken_of():
    report = report_of("When I tested the code, gpu was 8 times slower than cpu. Examples are trained one at a time.")
    assert "communication_bound" not in [finding.id for finding in report.findings]
