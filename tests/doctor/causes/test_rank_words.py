"""What is said of ranks in one line."""

from __future__ import annotations

import pytest

from tests.doctor.causes.judge import first, named


@pytest.mark.parametrize(
    "text",
    [
        "model = dict(find_unused_parameters=True, type='X') gives 2 % less accuracy in training",
        "In DDP training every process is on its own GPU, gpu 1 is used at 99 %",
        "NCCL uses eth0 here and training is fine",
        "rank 0 finished loading, rank 1 finished loading, training goes on",
    ],
)
def test_the_same_words_without_trouble_tell_nothing(text):
    assert named(text) == []


def test_more_processes_than_visible_devices_are_counted():
    text = "CUDA_VISIBLE_DEVICES=0 torchrun --nproc_per_node={n} train.py\nNCCL error: invalid usage"
    assert first(text.format(n=4)) == "duplicate_gpu_ranks"
    assert "4 processes" not in text.format(n=1)
    assert first(text.format(n=1)) != "duplicate_gpu_ranks"
