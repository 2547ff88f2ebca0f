"""The share of a device's arithmetic that a run uses: the model's FLOPs (MFU) or all FLOPs (HFU) over its peak."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from gpudoc.knowledge.cards import find_card
from gpudoc.train.meter.meters import Split
from gpudoc.train.step.precision import Name
from gpudoc.workload.batch import Batch, num_samples, tensors_in
from gpudoc.workload.flops import Counter


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """Published dense TFLOP/s of one device in one format, and the document; None with the reason if unknown."""

    tflops: float | None
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The cost of one sample, forward and backward: FLOPs, and tokens if samples are tokens. None: not counted.

    `model_flops` excludes the recomputation of activation checkpointing; `all_flops` includes it.
    """

    model_flops: float | None = None
    all_flops: float | None = None
    tokens: float | None = None

    @classmethod
    def of(cls, batch: Batch, counter: Counter, *, is_mixed: bool) -> Cost:
        """The cost of a sample of a counted micro batch.

        `is_mixed`: the model recomputes by its own means, which the counter cannot distinguish from its other work.
        """
        samples = num_samples(batch)
        # if torch has no formula for any product of a model, its cost is unknown, not 0
        model_flops = None if is_mixed else counter.model / samples or None
        return cls(
            model_flops=model_flops,
            all_flops=(counter.model + counter.again) / samples or None,
            tokens=_num_tokens(batch) / samples or None,
        )


def figures(cost: Cost, peak: Peak, samples: int, split: Split, world: int) -> dict[str, float]:
    """Tokens/s over all devices, TFLOP/s of one device and its shares of the peak, 0 to 1; only known figures.

    `samples` are those of all devices in the time of `split`, in which evaluation and checkpoints do not count.
    """
    seconds = split.wall_s - split.seconds["evaluate"] - split.seconds["checkpoint"]
    if samples <= 0 or seconds <= 0:
        return {}
    rate = samples / seconds
    found: dict[str, float] = {}
    if cost.tokens is not None:
        found["tokens_per_s"] = rate * cost.tokens
    if cost.model_flops is not None:
        found["model_tflops"] = rate / world * cost.model_flops / 1e12
        if peak.tflops is not None:
            found["mfu"] = found["model_tflops"] / peak.tflops
    if cost.all_flops is not None and peak.tflops is not None:
        found["hfu"] = rate / world * cost.all_flops / 1e12 / peak.tflops
    return found


def peak_of(device: torch.device, precision: Name) -> Peak:
    """The peak of `device` for matrices of `precision`, from the card's data sheet."""
    if device.type != "cuda":
        return Peak(tflops=None, source="no published rate is known for a CPU")
    name = torch.cuda.get_device_name(device)
    kind = "tf32" if precision == "fp32" and _allows_tf32() else precision
    card = find_card(name)
    if card is None or kind not in card.tflops:
        return Peak(tflops=None, source=f"no rate of {name} is known for {kind}")
    return Peak(tflops=card.tflops[kind], source=f"{kind}, dense; {card.source}")


def _allows_tf32() -> bool:
    """Whether products of fp32 matrices may use TF32, whichever of torch's two switches the user's code set."""
    matmul = torch.backends.cuda.matmul
    try:
        # since torch 2.9; the older switch raises once code has set this one
        own = getattr(matmul, "fp32_precision", None)
        return bool(matmul.allow_tf32) if own is None else own == "tf32"
    except RuntimeError:
        return False


def _num_tokens(batch: Batch) -> int:
    """The number of tokens in a batch: the size of its first tensor if that is a matrix of integers, else 0."""
    first = next((tensor for tensor in tensors_in(batch) if tensor.dim() > 0), None)
    is_tokens = first is not None and first.dim() == 2 and first.dtype in (torch.int32, torch.int64)
    return first.numel() if first is not None and is_tokens else 0
