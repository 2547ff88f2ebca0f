"""The least time a step can take: every operation at the card's dense rate or at its memory's bandwidth."""

from __future__ import annotations

from collections.abc import Iterable

from gpudoc.knowledge.cards import Card
from gpudoc.plan.tape import Work

_PRODUCTS = ("mm", "bmm", "addmm", "baddbmm", "attention", "convolution", "rnn_layer")


def least_step_s(works: Iterable[Work], card: Card) -> float:
    """Seconds; a lower bound, since launches, caches and shapes only add to it."""
    return sum(
        max(work.flops / (_rate(work, card) * 1e12), work.moved_bytes / (card.bandwidth_gb_per_s * 1e9))
        for work in works
    )


def _rate(work: Work, card: Card) -> float:
    # torch multiplies float32 matrices in float32 and convolves them in TF32, by default
    names = {"float16": "fp16", "bfloat16": "bf16"}
    kind = names.get(work.dtype, "tf32" if "convolution" in work.op else "fp32")
    if kind == "bf16" and "bf16" not in card.tflops:
        kind = "fp16"
    rate = card.tflops.get(kind, card.tflops["fp32"])
    return rate if any(part in work.op for part in _PRODUCTS) else card.tflops["fp32"]
