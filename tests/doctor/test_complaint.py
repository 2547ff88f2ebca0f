from __future__ import annotations

import pytest

from gpudoc.doctor import likelihood
from gpudoc.doctor.complaint import complaint_of, end_of_trouble, plain_question
from gpudoc.facts.readers import read
from gpudoc.knowledge.wording import Likelihood
from tests.doctor.causes.judge import report_of, verdict_is

OOM = (
    "Traceback (most recent call last):\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 "
    "has a total capacity of 23.68 GiB of which 1.10 GiB is free.\n"
)
OVER = (
    "All good, thanks! No CUDA out of memory any more since I use batch size 8.",
    "Fixed it! Reinstalling the driver solved the problem, is_available() returns True now. Thanks for your help.",
    "The training hung at the first step; this should be fixed now in the main branch, thank you.",
    "The training hung at the first step. With the new driver it seems to be solved, thank you.",
    "It was slow to start, and it got fixed by a local copy of the data. Thank you.",
    "Works now. After setting num_workers=8 the training isn't slow any more.",
    f"{OOM}Edit: solved, I use a batch of 4 and it works now. Thanks!",
    f"{OOM}Removed the old path, it has been running for two days without a hiccup. Closing this.",
    f"{OOM}已解决，谢谢",
    f"{OOM}Решено, спасибо",
)
NOT_OVER = (
    f"{OOM}Thanks for any help! It worked yesterday.",
    f"{OOM}This is not solved.",
    f"{OOM}It works fine on the CPU.",
    f"I fixed the import.\n{OOM}",
    "I fixed the import error, thanks. But now training hangs at the first step with 2 GPUs and NCCL times out.",
    "Each job starts a thread for every core, which slows all jobs down. My patch shows how it could be fixed.",
    "All jobs get slower. It can easily be solved with one thread for each.",
    "The training hangs at the first step. This has to be resolved before the release.",
    "The training hangs at the first step. I hope this will be fixed.",
    "Is this fixed in a later version? My training on the GPU is very slow.",
    "With DDP the ranks hang at the end of an epoch. When each rank has the same number of files, the problem is gone.",
    "Our training hangs once a rank has died. We kill it by hand until the bug in the launcher is fixed.",
)


@pytest.mark.parametrize("text", OVER)
def test_trouble_that_is_over_is_none(text):
    report = report_of(text)
    assert report.verdict == "healthy"
    assert {f.severity for f in report.findings} <= {"info"}
    assert report.understood[0].fact == "solved"
    assert report.understood[0].value in text


@pytest.mark.parametrize("text", NOT_OVER)
def test_thanks_a_hope_or_a_comparison_end_no_trouble(text):
    assert end_of_trouble(read(text).text) is None
    assert report_of(text).verdict != "healthy"


QUESTIONS = (
    "How many num_workers for 8 CPU cores?",
    "Which PyTorch version do I need for CUDA 12.1?",
    "Does the V100 support bf16?",
    "Should I use DDP or DataParallel for 4 GPUs?",
    "8核CPU的num_workers设多少？",
)

ASKED = (
    "Great repo! One epoch needs 25 minutes on my 3080. How long did your full training take on the A100? Thanks!",
    "Any plans for a version that supports several GPUs? I would love to use the model with two cards.",
    "Please add an option to choose the GPU by index. At the moment I set CUDA_VISIBLE_DEVICES, which is fine.",
    "Is your feature request related to a problem? Please describe.\nNo.\n\nDescribe the solution you'd like\nA flag.",
    "Hi, I have a question about the loss in eq. 3: why do you multiply by the temperature?",
    "Support for Apple silicon would be great: mps could be chosen by a flag.",
    "请问训练这个模型需要多大的显存？我只有一张3090。",
    "你好，请问论文中的实验用了几块GPU，训练了多长时间？",
    "Update: reducing the batch size fixed my out of memory error, closing this. Thank you for the quick help!",
)

test_who_asks_for_more_or_how_it_was_done_is_in_no_trouble = verdict_is(("healthy",), ASKED)

POOR = (
    "How can I speed up the training? One epoch costs 2 hours on a 2080 Ti and the GPU utilization is low.",
    "Is it normal that GPU memory is full but Volatile GPU-Util is 0% nearly all the time?",
    "I only get 1.3 it/s with 4 GPUs while a single GPU gives 2.1 it/s. Did you see the same?",
    "训练时GPU利用率一直是0，偶尔跳到90%，请问是什么问题？",
    "Can the copies on the first card be left out? It is an issue, since the other seven have room that I cannot use.",
    "How do I fully use the GPU? It is at 30% and the process uses a single CPU thread.",
    "How long does it take? My estimated time is 25 days, which is far more than the 2 days in the paper.",
    "It takes more than 10 minutes before the first iteration starts. What happens in these ten minutes?",
    "Inference with the GPU takes the same time as with the CPU. Is the GPU used at all?",
    "All outputs become nan after the first update. What can I do?",
)

test_who_asks_about_what_goes_badly_is_in_trouble = verdict_is(("unknown", "warning", "broken"), POOR)

test_a_plain_question_is_no_trouble = verdict_is(("healthy",), QUESTIONS)


@pytest.mark.parametrize("text", [
    "Why is my training so slow? The GPU is used at 20 %.",
    "How do I fix this?\nRuntimeError: CUDA error: unspecified launch failure",
    "It is a long story of my life. " * 30 + "How many workers?",
    "训练很慢，怎么办？",
])  # fmt: skip
def test_a_question_about_trouble_is_trouble_and_a_long_story_no_question(text):
    assert plain_question(read(text).text) is None


WHY = "Hi, thanks for sharing. Why do you train with a batch size of one? Could you give the reason for it? Thank you."


@pytest.mark.parametrize(("answer", "verdict"), [("healthy", "healthy"), ("slow_storage", "unknown")])
def test_who_asks_why_is_in_trouble_where_the_words_sound_like_it(monkeypatch, answer, verdict):
    rows = [Likelihood(answer, 0.9, 0.9, ())]
    monkeypatch.setattr(likelihood, "weigh", lambda text, facts: rows)
    assert plain_question(read("Why are the two figures different?").text) is None
    assert report_of("Why are the two figures different?").verdict == verdict


@pytest.mark.parametrize(("health", "verdict"), [(0.01, "unknown"), (0.2, "healthy")])
def test_a_question_in_words_that_no_healthy_one_has_is_not_called_healthy(monkeypatch, health, verdict):
    rows = [Likelihood("slow_storage", 0.2, 0.2, ()), Likelihood("healthy", health, health, ())]
    monkeypatch.setattr(likelihood, "weigh", lambda text, facts: rows)
    report = report_of(
        "Which of the two folders is meant on page four of the paper, the one below the root or the other?"
    )
    assert (report.verdict, report.findings) == (verdict, ())


FORM = """### Describe the bug
Training on two cards is slower than on one card.
### Expected behavior
It should need half of the time.
### Steps to reproduce
{}
### Environment
- OS: Ubuntu
"""


@pytest.mark.parametrize("heading", ["### Describe the bug", "**Describe the bug**", "我们遇到了一个问题"])
def test_a_long_form_for_a_bug_complains_though_nobody_says_i(heading):
    form = FORM.format("\n".join(f"{number}. run cell {number}" for number in range(30)))
    text = form.replace("### Describe the bug", heading)
    assert complaint_of(read(text).text).value.startswith("Training on two cards is slower")
    without = "\n".join(line for line in form.splitlines() if not line.startswith("#"))
    assert complaint_of(read(without).text) is None


def test_why_something_is_so_is_a_complaint_next_to_a_fact_of_trouble(monkeypatch):
    monkeypatch.setattr(likelihood, "weigh", lambda text, facts: [Likelihood("healthy", 0.9, 0.9, ())])
    assert report_of("Why are the images on NFS and one core at 100 %?").verdict == "unknown"


def test_why_an_author_did_something_is_a_plain_question():
    assert report_of(WHY).understood[0].fact == "question"


def test_what_is_off_by_default_is_no_complaint():
    text = (
        "Thanks for the great work. The model has an option for FP16, but it's not used by default. Was FP32 necessary?"
    )
    assert report_of(text).verdict == "healthy"


@pytest.mark.parametrize(
    "text", ["what's the cuda and torch version for this environment, thank you", "what's the torch for it"]
)
def test_a_question_needs_no_mark(text):
    assert plain_question(read(text).text) is not None


def test_that_nobody_knows_why_it_works_is_no_trouble():
    good = "Somehow after rebooting it is working now. However, {}"
    assert end_of_trouble(read(good.format("I have no idea what changed.")).text) is not None
    assert end_of_trouble(read(good.format("the second card is not listed.")).text) is None


def test_what_a_program_prints_is_no_complaint_of_anybody():
    printed = "lib.py:12: UserWarning: this is slow\n| a slow one |\n[W socket.cpp] it hangs\n12 passed, 0 failed"
    assert complaint_of(read(printed).text) is None
    said = complaint_of(read("lib.py:12: UserWarning: this is old\nand it is slow").text)
    assert said is not None
    assert (said.value, said.origin) == ("and it is slow", "line 2")


@pytest.mark.parametrize(
    "text",
    [
        "bash: mpirun: command not found. Is it installed?",
        "ERROR: the store gave up. Is the port open?",
        "condor_rm: could not reach the pool. Is it up?",
    ],
)
def test_a_tool_that_fails_asks_no_plain_question(text):
    assert plain_question(read(text).text) is None
    assert report_of(text).verdict == "unknown"


def test_torch_without_a_gpu_is_no_plain_question():
    report = report_of("torch.cuda.is_available() returns False, what can I do?")
    assert (report.verdict, report.answers) == ("unknown", ())
    assert "is_available" in report.unexplained[0].value


@pytest.mark.parametrize("text", [
    "Works now, although each epoch takes 3 hours and the GPU is at 10 %.",
    "All good in epoch 1.\nepoch 2 step 5 loss nan\n",
    "Fixed.\nstep 1 loss nan\nstep 2 loss nan\n",
])  # fmt: skip
def test_trouble_behind_the_good_word_is_trouble(text):
    assert report_of(text).verdict != "healthy"


@pytest.mark.parametrize("text", [
    "I train a resnet50 on four V100. It takes around 15 minutes per epoch, is that normal?",
    "One epoch on my data needs 90 s per epoch with the 3090. Is this speed normal?",
    "Is 15 minutes per epoch normal on a V100 with batch 32?",
    "How long should one epoch of imagenet take on a V100?",
    "It takes 20 min for one epoch on my V100, does that sound right?",
    "The GPU utilisation is almost 100 % with a batch of 64. Is that good?",
])  # fmt: skip
def test_who_only_asks_whether_a_figure_is_normal_complains_of_nothing(text):
    report = report_of(text)
    assert (report.verdict, report.understood[0].fact) == ("healthy", "question")


@pytest.mark.parametrize("text", [
    "GPU/CPU usage is super low. What might be the cause?",
    "It takes around 15 minutes per epoch. Is that normal? It was much faster before, now it is slow.",
    "GPU utilization is only 20%, is that normal?",
    "How long should one epoch take? Mine needs 4 hours per epoch and the GPU is idle.",
    "An epoch takes 9 hours with the A100, is this normal?",
])  # fmt: skip
def test_a_low_use_of_the_gpu_is_a_complaint_though_it_is_asked(text):
    assert report_of(text).verdict != "healthy"


def test_a_note_that_ends_in_done_is_healthy_and_says_so():
    from gpudoc.render.doctor import render

    report = report_of("Moved the loader of the training to the new format, 4 workers in each job.\nDone.")
    assert (report.verdict, report.understood[0].fact) == ("healthy", "finished")
    assert "It reports finished work: Done.  (line 2)" in render(report)


@pytest.mark.parametrize("text", [
    "The training of the new loader is not done.",
    "The new loader hangs with 4 workers. Done.",
    "Segmentation fault (core dumped)\nDone.",
    "Moved the loader. Done.\nTake two eggs.",
])  # fmt: skip
def test_done_ends_no_trouble(text):
    assert report_of(text).verdict != "healthy"


@pytest.mark.parametrize("text", [
    "The training takes about 100 hours (3*120000 seconds) with a Titan X. Is it normal?",
    "显存利用率只有 10%，这个值是什么意思？",
    "[train: 1, 150 / 937] FPS: 0.9, DataTime: 0.2, ForwardTime: 0.9\n" * 20 + "What does mean_IoU mean here?",
    "It lists the memory of each GPU. It could be added here, No code changes.",
])  # fmt: skip
def test_a_figure_is_no_complaint_where_somebody_asks_what_it_means_or_adds_something(text):
    assert plain_question(read(text).text) is not None
    assert report_of(text).verdict == "healthy"


@pytest.mark.parametrize("text", [
    "An epoch takes 9 hours, is that normal?",
    "The GPU utilization is only 10%, is that normal?",
    "The time of an iteration increases with every epoch.",
    "Its clock drops to 780 MHz.",
    "GPU 占用率一直很低",
    "For inputs of different lengths the model is recompiled.",
    "Saving the weights takes 10 minutes.",
    "The speed is low.",
    "The time of each step is unstable.",
    "With bf16 the speed went from 3.1 it/s to 0.7 it/s.",
    "8 ranks, GPU 0 goes OOM when it resumes.",
    "My classifier does not learn.",
    "Only one process is busy. Is the card defective?",
])  # fmt: skip
def test_these_are_complaints(text):
    assert complaint_of(read(text).text) is not None


def test_the_first_rank_is_not_none_of_them():
    text = "rank 0 got Xid 79 and GPU 0 goes OOM, from scratch there is no problem"
    assert report_of(text).verdict == "broken"
    assert report_of("In the night we got 0 Xid errors, all fine").verdict == "healthy"


def test_that_nothing_is_broken_is_no_trouble():
    asked = "Nothing is broken. What is a sensible num_workers for 2 GPUs and 32 cores?"
    assert report_of(asked).verdict == "healthy"


def test_memory_that_shall_not_run_out_is_denied():
    assert report_of("Which batch should I take, so that it won't run out of VRAM?").verdict == "healthy"


def test_what_works_after_a_restart_is_over():
    text = "I had a problem with nvidia-smi, it did not list my GPUs. After the reboot it worked, and I went on."
    assert end_of_trouble(read(text).text) is not None
