from __future__ import annotations

import pytest

from gpudoc.facts.model import Absent
from gpudoc.facts.readers import read


@pytest.mark.parametrize(
    ("said", "precision"),
    [
        ("lr 0.1, no amp, fp32\nloss nan", "float32"),
        ("use_amp=False, loss nan", "float32"),
        ("precision: 32, loss nan", "float32"),
        ("loss nan with autocast", "float16"),
        ("model.half() and then loss: nan", "float16"),
        ("loss is nan in fp16. In fp32 it works fine.", "float16"),
        ("loss is nan with amp. It is nan in fp32 too.", "float32"),
        ("loss nan with autocast in bf16", "bfloat16"),
        ("loss nan with bf16 instead of fp16", "float16"),
        ("loss nan", None),
        ("without amp everything works fine, else loss nan", None),
        ("fp16 weights were loaded", None),
    ],
)
def test_the_precision_of_a_training_run_is_a_fact(said, precision):
    known = read(said).machine.torch.precision
    assert isinstance(known, Absent) if precision is None else known == precision
