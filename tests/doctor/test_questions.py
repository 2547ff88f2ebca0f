from __future__ import annotations

import pytest

from gpudoc.doctor.questions import answers_to
from gpudoc.facts.readers import read
from gpudoc.knowledge.compatibility import build_for
from gpudoc.knowledge.drivers import driver_floor


def answered(text: str, question: str = "") -> str:
    return "\n".join(f"{answer.say} {answer.run}" for answer in answers_to(read(text), question or text))


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("How many num_workers for 8 CPU cores?", "gpudoc tune --only loader -- python train.py"),
        ("How many num_workers for 8 CPU cores?", "at most 8,"),
        ("Which PyTorch version do I need for CUDA 12.1?", "torch==2.5.1 torchvision==0.20.1"),
        ("Which PyTorch version do I need for CUDA 12.3?", "If 12.3 is what nvidia-smi shows"),
        ("Which torch wheel runs on an RTX 5090?", "compute capability 12.0"),
        ("What driver do I need for CUDA 12.8?", f"driver {driver_floor((12, 8))} or newer"),
        ("Does the V100 support bf16?", "Not in hardware"),
        ("Does an A100 have bfloat16?", "Yes: A100 has compute capability 8.0"),
        ("What is the largest batch that fits in 24 GB?", "--batch-size {batch}"),
        ("How fast is my GPU?", "gpudoc bench"),
        ("The GPU's temperature rises to 87°C, is this normal?", "nvidia-smi -q -d TEMPERATURE,PERFORMANCE"),
        ("How do I set the visible devices?", "CUDA_VISIBLE_DEVICES=1 python train.py"),
        ("How can I use only one of my GPUs?", "CUDA_VISIBLE_DEVICES=1 python train.py"),
        ("How much memory do I need for a larger batch?", "--batch-size {batch}"),
        ("Why does the GPU memory change all the time and not stay constant?", "gpudoc doctor -- python train.py"),
        ("How much memory does your training take?", "--batch-size {batch}"),
        ("Is 11 GB of memory enough for training?", "--batch-size {batch}"),
        ("How long does the training take?", "gpudoc train -- python train.py"),
        ("How can I check whether my GPU is used?", "gpudoc doctor --pid PID"),
    ],
)
def test_a_question_is_answered_from_a_table_or_with_the_command_that_measures(question, answer):
    assert answer in answered(question)


@pytest.mark.parametrize(
    "question", ["How do I change the learning rate schedule?", "Which GPU is best?", "Can I train on a single GPU?"]
)
def test_what_no_row_is_about_has_no_answer(question):
    assert answered(question) == ""


def test_what_a_question_is_about_stands_in_its_own_words_or_in_the_title():
    """Not in what is told beside it, as memory that saving takes here."""
    told = "An argument for saving\n\nEach save takes a lot of time and memory, enough for a batch.\n\n{}"
    asked = "Is there an option for that?"
    assert answered(told.format(asked), asked) == ""
    assert "{batch}" in answered(f"The largest batch that fits\n\nI have an A100.\n\n{asked}", asked)


def test_the_build_for_a_cuda_is_the_last_one_made_or_a_current_one():
    assert build_for((12, 1)) == "torch==2.5.1 torchvision==0.20.1 --index-url https://download.pytorch.org/whl/cu121"
    current = build_for((12, 6))
    assert current is not None
    assert current.startswith("torch torchvision torchaudio --index-url")
    assert build_for((12, 3)) is None
