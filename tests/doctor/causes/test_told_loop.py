from __future__ import annotations

import pytest

from tests.doctor.causes.judge import first, report_of

CASES = [
    # Python that computes
    ("python_bound", "The for loop over the boxes in my loss makes training slow, can it be vectorized?"),
    ("python_bound", "GPU utilization is 8 % in training: nested loops in pure python compute the targets, that takes 2 s per step"),
    ("python_bound", "训练很慢，loss 里面有双重循环"),
    ("python_bound", "One epoch of training needs 50 minutes per epoch, profile says this part:\nfor b in range(B):\n    for i in range(n):\n        for j in range(n):\n            target[b, i, j] = f(x)"),
    ("python_bound", "The Hungarian matching needs most of the time of each training step, more than the model on the GPU"),
    ("python_bound", "The Python processing of the targets is the bottleneck of my training, the GPU gets a batch once in a while"),
    # what is recorded
    ("logging_each_step", "Training is 3 times slower with the rich progress bar, without it an epoch takes 40 s"),
    ("logging_each_step", "add_histogram of all parameters makes every epoch of the training slow"),
    ("logging_each_step", "The training is slow, wandb prints 429 rate limit exceeded all the time"),
    ("logging_each_step", "Training is slow. WARNING:tensorflow:Callback method `on_train_batch_end` is slow compared to the batch time (batch time: 0.0200s vs `on_train_batch_end` time: 0.4100s). Check your callbacks."),
    ("logging_each_step", "wandb.log in the loop blocks the training for a moment every few seconds, without it the speed is constant"),
    ("logging_each_step", "An epoch of training takes 9 min with all loggers, with them deactivated 95 seconds"),
    # what is saved
    ("checkpoint_too_often", "Saving the model after each epoch costs a lot of time in my training, can I save once per 20 epochs?"),
    ("checkpoint_too_often", "Our training spends more time in the saver than in the steps since save_steps is 10"),
    ("checkpoint_too_often", "The trainer writes a checkpoint after every epoch and that is not efficient for short epochs"),
    ("checkpoint_too_often", "Saving a checkpoint of the 30b model takes 20 minutes on our cluster. Is that to be expected?"),
    ("checkpoint_too_often", "It takes about half an hour to save the checkpoint. Why?"),
    ("checkpoint_too_often", "The run pauses every 500 steps for a minute. What does it do there?"),
    # how batches come to the device
    ("pageable_copies", "Copying the batch to the GPU takes 30 ms in training, with pinned memory it takes 9 ms. Why is it so slow?"),
    ("pageable_copies", "The following APIs use PAGEABLE memory which causes asynchronous CUDA memcpy operations to block"),
    ("pageable_copies", "The copy to the GPU takes 14 ms per batch although non_blocking is set, is that slow?"),
    ("pageable_copies", "We transfer the batch with non-blocking copies in training but the tensors are not pinned"),
    # how samples become batches
    ("collate_in_main_process", "The collater runs in the main process and takes most of the time of each training step"),
    ("slow_worker", "The slowest worker of my DataLoader holds up all others, training waits although batches are there"),
    # values that are read
    ("gpu_sync_each_step", "My training loss reads the device 4 times per step: the profile shows the host waiting"),
    ("gpu_sync_each_step", "The trace shows 41% GPU idle time, total += loss.item() is called for each micro batch of the training"),
    # more workers than CPUs
    ("too_many_workers", "Training with num_workers=12 on a machine with 4 cores is slow"),
    ("too_many_workers", "The default of 64 loader workers is too many, training freezes the desktop. 64 is too high for most machines, num_workers"),
]  # fmt: skip


@pytest.mark.parametrize(("cause", "text"), CASES)
def test_what_is_found_in_the_loop_names_its_cause(cause, text):
    assert first(text) == cause, [(f.id, f.confidence, f.severity) for f in report_of(text).findings]


@pytest.mark.parametrize(
    "text",
    [
        "The for loop over the epochs trains the model as it should. Which optimizer did you use?",
        "I log the loss to tensorboard after each epoch, training works. How do I compare two runs?",
        "Callback method `on_train_batch_end` is slow compared to the batch time (batch time: 0.0000s vs `on_train_batch_end` time: 0.0010s). Training works.",
        "A checkpoint is written after each epoch of the training. Can I load it into the other model?",
        "With Hungarian matching the training converges slowly, is that normal for the first 50 epochs?",
        "How long does it take to load the checkpoint? Saving works.",
        "The run pauses every 1000 steps for the evaluation. Which metric is computed there?",
        "pin_memory=True is set in the loader and training runs at 900 images/s. Is that what you get?",
        "My collate_fn pads the sentences, training works. Should the padding be -100?",
        "I train with num_workers=4 on a machine with 16 cores. Is that what you did?",
    ],
)  # fmt: skip
def test_a_loop_that_does_what_it_should_is_no_finding(text):
    assert not [(f.id, f.evidence) for f in report_of(text).findings if f.severity != "info"]


@pytest.mark.parametrize(
    ("cause", "text"),
    [
        (
            "python_bound",
            "for epoch in range(9):\n  for x in loader:\n    train(x)\nan epoch takes 3 minutes per epoch, is it slow?",
        ),
        ("gpu_sync_each_step", "GPU idle time is 41%: the DataLoader is slow. I print loss.item() in training"),
        ("checkpoint_too_often", "With gradient checkpointing every training step is slow, it takes more time"),
        ("checkpoint_too_often", "Downloading the checkpoint takes a long time at each start of the training"),
        ("logging_each_step", "Training is slow, see the log below: the data loading takes long"),
        ("python_bound", "The for loop over the DataLoader is slow in training"),
        ("too_many_workers", "num_workers=8 on a machine with 16 cores, training is slow"),
    ],
)
def test_a_circumstance_that_says_otherwise_takes_the_cause_away(cause, text):
    assert cause not in [f.id for f in report_of(text).findings if f.severity != "info"]
