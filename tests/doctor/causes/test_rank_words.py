"""What is said of ranks in one line."""

from __future__ import annotations

import pytest

from tests.doctor.causes.judge import first, named

SAID = [
    ("ddp_unused_parameters", "Training on several GPUs stops with an error, find_unused_parameters=True helps"),
    ("ddp_unused_parameters", "parameter indices which did not receive grad for rank 3: 7 8"),
    ("ddp_uneven_inputs", "in our training rank 2 runs out of data before the rest, then everything waits"),
    ("ddp_uneven_inputs", "Four gpus in DDP training: 2 batches for three gpus and one batch for the last, a deadlock"),
    ("ddp_uneven_inputs", "Each gpu gets a different number of batches in DDP training. At the end it hangs."),
    ("ddp_uneven_inputs", "数据不能整除卡数，训练到最后卡住"),
    ("nccl_timeout_one_rank_busy", "A timeout in NCCL appears because only the main process builds the cache"),
    ("nccl_wrong_interface", "NCCL picks docker0 instead of the card between the machines"),
    ("nccl_network_unreachable", "[E socket.cpp] The client socket has failed to connect to [host]:29500"),
    (
        "nccl_network_unreachable",
        "NCCL WARN socketProgressOpt: Call to recv from 10.0.0.9<51000> failed : Connection reset",
    ),
    ("nccl_shm_too_small", "NCCL WARN Error: failed to extend /dev/shm/nccl-Ab3 to 9637892 bytes"),
    ("nccl_shm_too_small", "NCCL in the container only works with --shm-size=8g"),
    ("duplicate_gpu_ranks", "torchrun: both processes run on GPU 0 and the second GPU stays empty in training"),
    ("port_in_use", "launch distributed communication on port `29500`, but another process is utilizing it"),
    ("nccl_network_unreachable", "RuntimeError: connect() timed out. Original timeout was 1800000 ms."),
    ("duplicate_gpu_ranks", "srun puts every rank on cuda:0 while the other gpus are idle"),
    ("duplicate_gpu_ranks", "In my DDP training all processes are placed on the same GPU"),
]


@pytest.mark.parametrize(("cause", "text"), SAID)
def test_one_line_tells_it(cause, text):
    assert first(text) == cause


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
