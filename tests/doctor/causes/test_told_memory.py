from __future__ import annotations

import pytest

from tests.doctor.causes.judge import first, ids, report_of

KILLED = [
    "My training is killed a few minutes after it starts, the last thing I see is that it reads the annotations",
    "I train on 400k photos. While the cache of the dataset is being built the process was killed by the system.",
    "The script only prints 'Killed' and nothing else, dataset has 80 GB, machine has 32 GB",
    "训练加载数据的时候进程被kill了，没有别的报错",
    "During preprocessing of the corpus both RAM and swap are full and python gets killed, torch 2.1, RTX 3060",
    "Neither the number of workers nor augmentation changes it: RSS of the training rises to 250 GB, then the OOM killer ends it",
    "Training runs in Colab. The session crashes after some minutes and restarts, there is no error message",
    "It automatically kills the process while my training reads the dataset",
    "RAM OOM when the prepared dataset is loaded, training on 8 nodes with 192 GB VRAM per GPU",
    "Reading all images needs too much memory, the training stops every time",
    "The pod of my training was evicted: the node was low on resource: memory",
    "Out of CPU memory in the validation phase of my training, 2000 images",
    "the kernel of my notebook dies as soon as I build the training set, no traceback at all",
]


@pytest.mark.parametrize("text", KILLED)
def test_a_program_that_was_killed_ran_out_of_the_hosts_memory(text):
    assert first(text) == "host_oom_killed", [(f.id, f.confidence) for f in report_of(text).findings]


@pytest.mark.parametrize(
    "text",
    [
        "How do I kill -9 a training that I started with nohup? It is in epoch 3 of 10.",
        "I killed the training after 20 epochs because the loss was flat. Which learning rate do you use?",
        "torchrun: CUDA error: device-side assert triggered, then the other ranks were killed",
    ],
)
def test_who_ends_a_program_himself_has_memory_enough(text):
    assert "host_oom_killed" not in [f.id for f in report_of(text).findings if f.severity != "info"]


def test_host_memory_that_grows_in_the_main_process_is_a_leak_there():
    text = "CPU RAM keeps increasing while training (num_workers=0), 12 GB after one epoch, 30 GB after three"
    assert "host_memory_leak" in ids(text)[:1]


def test_full_host_memory_in_a_run_that_hangs_is_the_cause_and_not_the_card():
    text = "After some epochs the training just stays there. It turns out that RAM (32 GB) is full and swap too, the GPU is at 0 %"
    assert first(text) == "host_memory_leak"


def test_a_worker_that_was_killed_says_nothing_of_copies():
    text = (
        "RuntimeError: DataLoader worker (pid 77) is killed by signal: Killed. RAM of the machine slowly increases "
        "until it happens, one of the python processes takes 90 GB; with num_workers=0 it is the same"
    )
    assert first(text) == "host_oom_killed"


def test_copies_of_python_objects_in_workers_stay_their_own_cause():
    text = "Training: RAM grows in every epoch with 8 loader workers, the dataset holds a list of 5 M dicts; with num_workers=0 it stays flat"
    assert first(text) == "worker_copy_on_write_growth"


OUTLIVED = [
    "I stopped my training with ctrl-c but the GPU memory is still occupied, nvidia-smi lists nothing",
    "When the script crashes the card's memory is never released, and I cannot start it again",
    "程序退出以后显存没有释放，只能重启",
    "After the python process has exited, 9 GB of memory on the GPU remain allocated",
]


@pytest.mark.parametrize("text", OUTLIVED)
def test_memory_that_outlives_the_program_belongs_to_a_process_that_is_left(text):
    assert first(text) == "oom_other_process", [(f.id, f.confidence) for f in report_of(text).findings]


def test_memory_that_is_not_given_back_between_steps_is_no_other_process():
    text = "GPU memory is not released after each epoch of training, del loss and empty_cache() don't help"
    assert first(text) != "oom_other_process"


SPILL = [
    "On Windows 11 the training of my LoRA takes 40 s/it; task manager shows that the GPU memory is full and 6 GB of shared memory are used",
    "Win10, 3060. It uses shared GPU memory instead of dedicated VRAM and is terribly slow",
    "Windows 10 训练很慢，显存几乎占满，但是GPU利用率很低",
]


@pytest.mark.parametrize("text", SPILL)
def test_a_full_card_on_windows_takes_the_hosts_memory(text):
    assert first(text) == "vram_spill_to_system_memory", [(f.id, f.confidence) for f in report_of(text).findings]


def test_shared_memory_of_a_container_is_no_spill():
    text = "DataLoader in docker on Windows: worker is killed by signal: Bus error, insufficient shared memory (shm), slow too"
    assert first(text) == "shm_too_small"
    assert "vram_spill_to_system_memory" not in [f.id for f in report_of(text).findings if f.severity != "info"]


def test_device_memory_that_climbs_with_the_longest_utterance():
    text = "Training an ASR model, GPU memory keeps increasing during the first epoch until CUDA out of memory. Tried to allocate 2.00 GiB"
    assert first(text) == "oom_variable_length_batch"


def test_a_loss_that_is_added_up_is_a_leak_in_speech_too():
    text = "ASR training: total_loss += loss, GPU memory keeps increasing until CUDA out of memory"
    assert first(text) == "leak_graph_kept"


@pytest.mark.parametrize(
    "text",
    [
        "Training log: GPU memory 10.2 GB, RAM 14 GB, no problems. What batch size do you recommend for 512 px?",
        "After training has finished the model is saved and all memory is released, is there an option to keep it?",
    ],
)
def test_memory_that_is_fine_is_no_finding(text):
    assert not [f.id for f in report_of(text).findings if f.severity != "info"]


def test_a_program_that_takes_all_host_memory_and_makes_wonder():
    text = "Training uses almost all of my 64 GB RAM although the dataset has 30 GB, why?"
    assert first(text) == "host_memory_leak"


def test_the_device_runs_out_of_memory_after_a_validation_that_kept_its_graphs():
    text = "Each time after the validation there is an out of memory error when training goes on, RTX 3090"
    assert first(text) == "oom_eval_without_no_grad"


def test_memory_that_is_set_against_the_cards_is_the_hosts():
    text = "Training takes nearly 60 GB of memory but the graphics card memory is almost empty, it is interrupted now and then"
    assert first(text) == "host_memory_leak"


def test_a_card_that_is_said_to_have_too_little_memory():
    assert first("My 6 GB of VRAM are not enough for training this LoRA, what can I do?") == "oom_capacity"
    assert first("Training works, 8 GB of VRAM are enough for it.") != "oom_capacity"
