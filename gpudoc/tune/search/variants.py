"""Which changes other than the batch are worth a trial on this device for this model, best first; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpudoc.tune.trial.messages import Allocator, Variant

Changes = Mapping[str, object]
_COMPILE_BUDGET_S = 240.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """What decides whether a variant can help: the device, its formats, the model's layers, the time there is."""

    device: str
    native_bf16: bool
    has_images: bool
    precision: str
    budget_s: float
    can_compile: bool
    can_recompute: bool = False
    can_fuse: bool = False
    capability: tuple[int, int] | None = None


def variants_to_try(abilities: Abilities, goal: str) -> tuple[tuple[str, Changes], ...]:
    """(name, changes to the variant) in the order of expected gain; each is tried on top of what won before."""
    found: list[tuple[str, Changes]] = []
    on_gpu = abilities.device.startswith("cuda")
    if abilities.precision == "auto":
        if abilities.native_bf16:
            found.append(("bf16", {"precision": "bf16"}))
        elif on_gpu:
            found.append(("fp16 with loss scaling", {"precision": "fp16"}))
    if abilities.has_images:
        found.append(("channels_last", {"channels_last": True}))
    if goal == "throughput" and not on_gpu:
        found.append(("the exact allocator", {"allocator": "exact"}))
    if on_gpu:
        found.append(("expandable segments", {"allocator": "expandable"}))
    if goal == "throughput" and abilities.can_fuse:
        # training uses the fused kernel wherever there is one: what is tried is to do without
        found.append(("the optimizer without its fused kernel", {"fused": False}))
    if abilities.can_compile and abilities.budget_s >= _COMPILE_BUDGET_S:
        found.append(("torch.compile", {"compile": True}))
    return tuple(found)


def ways_out(abilities: Abilities, now: Variant) -> tuple[tuple[str, Changes], ...]:
    """What may let a step fit that does not, cheapest in speed first: (name, changes), each on top of `now`."""
    on_gpu = abilities.device.startswith("cuda")
    frugal: Allocator = "expandable" if on_gpu else "exact"
    frugally: Changes = {"allocator": frugal}
    found: list[tuple[str, Changes]] = []
    if now.allocator != frugal:
        found.append((f"the allocator {frugal!r}", frugally))
    recomputed: Changes = {**frugally, "activation_checkpointing": True}
    if abilities.can_recompute:
        found.append(("activation checkpointing", recomputed))
    if abilities.precision == "auto" and now.precision == "fp32":
        lower = "fp16" if on_gpu and not abilities.native_bf16 else "bf16"
        found.append((lower, {**frugally, "precision": lower}))
        if abilities.can_recompute:
            found.append((f"activation checkpointing and {lower}", {**recomputed, "precision": lower}))
    return tuple(found)
