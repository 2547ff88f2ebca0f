"""What people tell of several processes: who waits for whom, where they meet, what takes no part."""

from __future__ import annotations

import pytest

from tests.doctor.causes.judge import first, ids, named

BAR = "Map:  61%|██████    | 610000/1000000 [{clock}<11:32, 560.1 examples/s]Traceback (most recent call last):"


@pytest.mark.parametrize("clock", ["29:58", "30:12", "10:03"])
def test_a_bar_that_ends_at_the_limit_of_a_barrier_was_one_ranks_work(clock):
    text = BAR.format(clock=clock) + "\n    with args.main_process_first(desc='map'):"
    assert first(text) == "nccl_timeout_one_rank_busy"


def test_a_bar_that_ends_at_any_other_time_says_nothing():
    text = BAR.format(clock="04:10") + "\n    torch.distributed.barrier()"
    assert "nccl_timeout_one_rank_busy" not in [i for i in ids(text) if i == first(text)]


def test_preparing_in_one_rank_beyond_what_the_others_wait():
    text = "Rank 0 is preparing the corpus, which takes 45 minutes here, and then the training ends with an exception"
    assert first(text) == "nccl_timeout_one_rank_busy"


def test_samples_that_leave_a_rest_are_divided():
    text = "Training on two GPUs (gpu_ids 0,1) crashes at the end of an epoch. I have 1025 images and 1025 % 8 = 1"
    assert first(text) == "ddp_uneven_inputs"
    even = text.replace("1025 % 8 = 1", "1024 % 8 = 0")
    assert "ddp_uneven_inputs" not in named(even)


def test_a_stream_that_stops_at_the_end_of_an_epoch_has_unequal_parts():
    text = "With an IterableDataset the distributed training hangs at the end of each epoch"
    assert first(text) == "ddp_uneven_inputs"


MEET = [
    "Training on two machines just hangs in init_process_group, one machine alone works well",
    "torchrun --nnodes=2 --node_rank=1 train.py : both processes are stuck after the start, no output",
    "多机训练启动后一直卡住，没有任何输出",
]


@pytest.mark.parametrize("text", MEET)
def test_machines_that_never_meet_look_at_the_wrong_interface_or_a_closed_port(text):
    assert {"nccl_wrong_interface", "nccl_network_unreachable"} <= set(ids(text)[:3])


def test_an_interface_that_was_well_chosen_leaves_the_network():
    text = (
        "a:17:17 [0] NCCL INFO Bootstrap : Using [0]eth0:10.0.0.3<0>\nTraining on two nodes is stuck after the start."
    )
    assert first(text) == "nccl_network_unreachable"


@pytest.mark.parametrize(
    "text",
    [
        "Training on two machines is slow and seems to hang at the start of every epoch",
        "Distributed training hangs on a single machine at the start, several servers show it",
    ],
)
def test_what_is_slow_or_alone_has_no_network_to_blame(text):
    assert "nccl_wrong_interface" not in named(text)[:1]


def test_cards_that_stop_at_their_first_exchange_and_work_alone():
    text = "Training on 2 GPUs hangs at the first step, both are at full utilization. With one GPU it works well."
    assert first(text) == "nccl_p2p_hang"
    assert first("CUDA_VISIBLE_DEVICES=0,1 python train.py froze after printing the model") == "nccl_p2p_hang"


@pytest.mark.parametrize(
    "text",
    [
        "My model has two branches and in some batches one branch is not used. With DDP the backward hangs.",
        "I put no_grad() around the encoder and the distributed training gives a runtime error on two gpus",
        "The loss_b is zero on one gpu when there is no object; Distributed Data Parallel training then gets stuck on that gpu",
    ],
)
def test_parts_of_the_model_that_take_no_part(text):
    assert first(text) == "ddp_unused_parameters"


def test_parts_that_idle_on_one_card_trouble_nobody():
    assert "ddp_unused_parameters" not in named(
        "One branch of my network is not used when I train on one GPU. Error rate 3 %"
    )


@pytest.mark.parametrize(
    "text",
    [
        "torchrun says that master_port is already used",
        "启动训练时提示端口被占用",
        "training: the port 29500 is already taken",
    ],
)
def test_a_port_that_is_taken(text):
    assert first(text) == "port_in_use"


def test_a_port_that_is_used_for_something_is_not_taken():
    assert "port_in_use" not in named("For training the master_port can be any number, I use port 29501")


def test_an_error_rate_is_no_error():
    assert "ddp_unused_parameters" not in named("I freeze the encoder layers in DDP training, the error rate is higher")


def test_both_cards_are_cards():
    text = "2x 3090 training is stuck with 100% on both cards and makes no progress; a single GPU is OK"
    assert first(text) == "nccl_p2p_hang"


def test_the_watchdog_ends_those_who_wait_for_a_save():
    text = "Saving on rank 0 takes 35 minutes, then the other ranks are killed by the watchdog"
    assert first(text) == "nccl_timeout_one_rank_busy"


def test_values_that_are_wrong_only_on_the_second_card():
    text = "DataParallel training gives wrong results on the second GPU, on a single GPU they are right"
    assert first(text) == "nccl_p2p_hang"
    assert "nccl_p2p_hang" not in named("My training gives wrong results, with one GPU and with none")


def test_heads_that_only_some_samples_use():
    assert first("In DDP some heads are only used for some samples, then the training hangs") == "ddp_unused_parameters"


def test_a_launcher_that_is_only_named_starts_no_ranks():
    assert "ddp_unused_parameters" not in named(
        "With accelerate the unused layers are offloaded, when I train there is an error"
    )
