from __future__ import annotations

import pytest

from tests.doctor.causes.judge import first, report_of

CASES = [
    # where it computes
    ("training_on_cpu", "My network trains on the CPU instead of the GPU although I have a GTX 1080, it is slow"),
    ("training_on_cpu", "The GPU is never used while I train the model, all the work happens on the cpu"),
    ("training_on_cpu", "训练的时候用的是CPU，GPU没有被使用，很慢"),
    # who is on the first card
    ("extra_contexts_on_gpu0", "torchrun with 4 processes: each process also takes 600 MB on GPU 0, is that expected?"),
    ("extra_contexts_on_gpu0", "processes of rank 1, 2 and 3 occupy memory on cuda:0 as well when I train with DDP"),
    ("extra_contexts_on_gpu0", "训练时其它进程 rank 1 在 GPU0 也占用了显存, every process has 500M on gpu 0"),
    # what an evaluation keeps
    ("oom_eval_accumulates_predictions", "There is a memory leak in my LightningModule: the validation results of each step are stored until the epoch ends"),
    ("oom_eval_accumulates_predictions", "During testing all predictions are appended to one list on the GPU, then CUDA out of memory"),
    # where an epoch begins
    ("workers_recreated_each_epoch", "Training is fast, but after each epoch the GPU is idle for about 40 seconds"),
    ("workers_recreated_each_epoch", "训练时每个epoch开始都要等待很久，GPU空闲"),
    # what is written and shown
    ("checkpoint_too_often", "Training steps are quick but saving the checkpoint every 50 steps takes minutes"),
    ("logging_each_step", "Training is slow because wandb uploads an image in every step, logging each step takes 2 s"),
    ("logging_each_step", "The display time increases with the number of images in the html page"),
    ("logging_each_step", "The training time increases the more curves matplotlib plots, each plot is kept open"),
    # what machines and cards tell each other
    ("communication_bound", "DDP training on two servers takes 3 h per epoch, on a single server 1 h; why is it slower on two servers?"),
    ("communication_bound", "With 4 nodes the throughput of my torchrun training drops to 12 samples/s per gpu, one node alone has 40"),
    ("communication_bound", "Why is DDP on 4 gpus slower than training on one gpu?"),
    ("communication_bound", "I train on 16 GPUs and think that the gradient sync between the nodes takes most of the time"),
    ("communication_bound", "The training doesn't run faster with multi-gpu, 2 GPUs and 1 GPU need 30 s per epoch"),
    ("communication_bound", "Same speed is seen on 2x A100: the training speed is the same as on 1x A100, both busy"),
    ("communication_bound", "Training gets slower with the number of gpus, is it the all-gather?"),
    ("communication_bound", "I don't see an improvement in training with 2 x 4090 over 1 x 4090"),
    ("communication_bound", "There's no speedup in training with multi GPU over one GPU"),
    ("communication_bound", "2 workers with 4 GPUs each perform worse in training than a single worker"),
    ("communication_bound", "Training on several nodes is inefficient, on one node it is normal"),
    # what prepares the inputs, and what is compiled
    ("decode_bound", "Training is cpu intensive here, all of my cores are under heavy load. Is it the augmentation? The GPU idles"),
    ("decode_bound", "Training is slow, when I increase num_workers the CPU load is at 100 %"),
    ("decode_bound", "Since I added albumentations an epoch of training takes twice as long"),
    ("decode_bound", "Training: the image decoding in the loader is slow, all CPUs are at 100 %"),
    ("decode_bound", "训练时数据增强很慢，CPU占满"),
    ("decode_bound", "Training is slow since each sample reads a whole mp4 to get one frame, with more GPUs it is slower"),
    ("compile_recompiles", "With torch.compile the first hundred batches of training are very slow"),
    # what ends without a word
    ("host_oom_killed", "Training the model terminates in the second epoch without any error message"),
    ("host_oom_killed", "训练到一半程序自动退出，没有任何报错"),
]  # fmt: skip


@pytest.mark.parametrize(("cause", "text"), CASES)
def test_what_is_told_of_the_programs_doing_names_its_cause(cause, text):
    assert first(text) == cause, [(f.id, f.confidence, f.severity) for f in report_of(text).findings]


@pytest.mark.parametrize(
    "text",
    [
        "How can I train this model on the CPU? It is small enough.",
        "Training on two nodes with DDP takes 10 h, on a single node it takes 19 h. Do I have to scale the learning rate?",
        "I decode the images once and store them, then training is fast. Do you augment them too?",
        "torch.compile gives me a speed-up of 1.4 for training, no long wait. Thanks!",
        "Training runs with 4 processes, each process uses its own GPU, 9 GB each. Nice work!",
        "The data loading runs on the CPU with 8 workers and the GPU is busy all the time, training looks good.",
        "After each epoch the validation takes 40 seconds, then training goes on. Which metric do you report?",
        "I save a checkpoint every 1000 steps, training works. Where is the best model stored?",
        "wandb shows the training loss of each step. Which learning rate should I take?",
        "The training finishes without errors and the predictions of the test set are stored in out.csv",
    ],
)
def test_a_program_that_does_what_it_should_is_no_finding(text):
    assert not [(f.id, f.evidence) for f in report_of(text).findings if f.severity != "info"]


def test_a_build_without_cuda_explains_work_on_the_cpu_better():
    text = "It trains on the cpu instead of the gpu, torch 2.3.0+cpu, torch.cuda.is_available() is False, RTX 3060"
    assert first(text) == "cpu_only_torch"


def test_a_first_card_that_overflows_by_the_processes_of_others_is_broken():
    report = report_of("DDP: processes of the other GPUs appear on GPU0 with the same PID and its memory overflows")
    assert [(f.id, f.severity) for f in report.findings][:1] == [("extra_contexts_on_gpu0", "broken")]
