from __future__ import annotations

import pytest

from tests.doctor.causes.judge import first, ids, report_of

CASES = [
    ("too_many_workers", "UserWarning: This DataLoader will create 24 worker processes in total. Our suggested max number of worker in current system is 4, which is smaller than"),
    ("dataloader_bottleneck", "\n".join(f"Epoch: [0][{i}0/500] Time 1.21 ( 1.30) Data 0.9{i} ( 0.95) Loss 4.1" for i in range(5))),
    ("host_oom_killed", "RuntimeError: DataLoader worker (pid 4711) is killed by signal: Killed."),
    ("worker_copy_on_write_growth", "RAM usage of the DataLoader workers grows during the epoch until the machine swaps; the dataset holds a list of 20 million dicts"),
    ("leak_graph_kept", "GPU memory increases every iteration; total_loss += loss"),
]  # fmt: skip


@pytest.mark.parametrize(("cause", "text"), CASES)
def test_what_holds_the_loader_or_the_host_back_is_named(cause, text):
    assert first(text) == cause, [(f.id, f.confidence) for f in report_of(text).findings]


def test_a_steady_log_with_little_waiting_is_healthy():
    text = "\n".join(f"Epoch: [0][{i}0/500] Time 1.21 ( 1.30) Data 0.02 ( 0.03) Loss 4.{9 - i}" for i in range(6))
    assert report_of(text).verdict == "healthy"


GROWTH = [
    ("oom_eval_without_no_grad", "in the validation phase my gpu gets more and more memory until it crashes"),
    ("leak_graph_kept", "memory of the GPU grows without end until OOM\n    total_energy += energy\n    energy.backward()\n    optimizer.step()"),
    ("leak_graph_kept", "GPU RAM usage slowly increases during each epoch of training, nvidia-smi shows 100 MB more every time"),
    ("leak_graph_kept", "in the training loop the GPU consumption keeps increasing until OOM, I print torch.cuda.memory_allocated()"),
    ("oom_variable_length_batch", "training ends with CUDA out of memory, at step 300 the gpu memory suddenly increases"),
    ("host_memory_leak", "during training the ram usage goes up constantly until the machine swaps"),
]  # fmt: skip


@pytest.mark.parametrize(("cause", "text"), GROWTH)
def test_what_grows_is_told_by_where_and_when_it_grows(cause, text):
    assert first(text) == cause


@pytest.mark.parametrize(
    ("text", "many", "few"),
    [
        ("torchrun --nproc_per_node=4 train.py --num_workers {}   # the node has 32 cpus and training is slow", 16, 4),
        ("Training is slow. The loader has num_workers={}, the machine has 8 cores", 16, 4),
    ],
)
def test_workers_of_all_processes_are_counted_against_the_cpus_that_are_named(text, many, few):
    assert first(text.format(many)) == "too_many_workers"
    assert "too_many_workers" not in [f.id for f in report_of(text.format(few)).findings if f.severity != "info"]


def test_a_rise_of_something_else_beside_the_word_usage_is_no_leak():
    text = "one GPU has a very low usage in training; I tried to increase the workers. The dataloader can not provide data in time"
    assert first(text) == "dataloader_bottleneck"


def test_how_long_an_epoch_takes_says_nothing_of_its_beginning():
    assert "workers_recreated_each_epoch" not in ids(
        "training works, the time of each epoch is 44 s and the loss falls"
    )
    assert first("training: before every epoch there is a pause of half a minute") == "workers_recreated_each_epoch"


def test_memory_that_the_host_kills_for_is_not_the_device_s():
    text = "Memory keeps growing while training, each step needs more memory, in the end the process is killed"
    assert first(text) in ("host_memory_leak", "host_oom_killed")


def test_losses_that_are_stored_explain_memory_that_explodes():
    assert first("The memory explodes in training because all losses are stored in a list") == "leak_graph_kept"


def test_a_batch_that_cannot_be_increased_is_no_growth():
    text = "Training: because of the memory of my card I cannot increase the batch size beyond 8, loss is fine"
    assert "leak_graph_kept" not in [f.id for f in report_of(text).findings if f.severity != "info"]


def test_the_workers_of_rllib_are_no_loader_workers():
    text = "tune.run('PPO', config={'num_workers': 1, 'num_gpus': 1}) in rllib is slow, training needs days"
    assert "too_few_workers" not in [f.id for f in report_of(text).findings if f.severity != "info"]
