"""The least time a step can take: every operation at the card's dense rate or at its memory's bandwidth."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from gpudoc.knowledge.cards import KnownCard
from gpudoc.plan.tape import Work

_PRODUCTS = ("mm", "bmm", "addmm", "baddbmm", "attention", "convolution", "rnn_layer")


@dataclass(frozen=True, kw_only=True)
class ExchangedBytes:
    """Bytes of one step per GPU: over the link to other GPUs, up from the host and down to it; and the GPU's bytes in
    the host's memory."""

    link_bytes: int = 0
    up_bytes: int = 0
    down_bytes: int = 0
    host_bytes: int = 0

    def least_s(self, card: KnownCard) -> float:
        """Seconds on the busiest of the three paths, which run at the same time."""
        to_host = max(self.up_bytes, self.down_bytes) / (card.host_gb_per_s * 1e9)
        return max(to_host, self.link_bytes / (card.link_gb_per_s * 1e9))


@dataclass(frozen=True, kw_only=True)
class StepCost:
    """The computation of a step of `num_samples` on one GPU, over all its micro batches, and its exchange meanwhile."""

    works: tuple[Work, ...]
    num_samples: int
    exchange: ExchangedBytes = ExchangedBytes()

    def seconds_per_sample(self, card: KnownCard, times: float = 1) -> float:
        """The least seconds of GPU time per sample if the step's computation runs `times` before one update."""
        update = least_step_s((work for work in self.works if work.is_update), card)
        computed = least_step_s((work for work in self.works if not work.is_update), card)
        # the exchange overlaps with the computation
        return (times * max(computed, self.exchange.least_s(card)) + update) / (times * self.num_samples)

    def flops_per_sample(self) -> float:
        """Floating-point operations per sample."""
        return sum(work.flops for work in self.works) / self.num_samples


def slowdown(whole: StepCost, cost: StepCost, card: KnownCard | None, times: float) -> float | None:
    """The least GPU time per sample under `cost`, divided by that of `whole`; None if unknown.

    Without a card it compares only the computation, and is None for a step with an exchange.
    """
    if card is not None:
        return cost.seconds_per_sample(card, times) / whole.seconds_per_sample(card)
    exchanges = cost.exchange.link_bytes or cost.exchange.up_bytes
    return None if exchanges or not whole.flops_per_sample() else cost.flops_per_sample() / whole.flops_per_sample()


def least_step_s(works: Iterable[Work], card: KnownCard) -> float:
    """Seconds of the operations; a lower bound, since launches, caches and shapes only add to it."""
    return sum(
        max(work.flops / (_rate(work, card) * 1e12), work.moved_bytes / (card.bandwidth_gb_per_s * 1e9))
        for work in works
    )


def _rate(work: Work, card: KnownCard) -> float:
    # torch multiplies float32 matrices in float32 and convolves them in TF32, by default
    names = {"float16": "fp16", "bfloat16": "bf16"}
    kind = names.get(work.dtype, "tf32" if "convolution" in work.op else "fp32")
    if kind == "bf16" and "bf16" not in card.tflops:
        kind = "fp16"
    # if the tensor cores' rate for 16 bits is unknown, only the bandwidth limits a product
    unknown = math.inf if kind == "fp16" and card.capability >= (8, 0) else card.tflops["fp32"]
    rate = card.tflops.get(kind, unknown)
    return rate if any(part in work.op for part in _PRODUCTS) else card.tflops["fp32"]
