"""The learning rate as a pure function of the step: nothing to save, nothing to restore."""

from __future__ import annotations

import math

from gpudoc.workload.config import Schedule


def factor(schedule: Schedule, step: int, total_steps: int) -> float:
    """What the base learning rate is multiplied by in `step` (from 0) of `total_steps`; one_cycle peaks at 1."""
    warmup = min(schedule.warmup_steps, max(0, total_steps - 1))
    if schedule.name == "one_cycle" and warmup == 0:
        # its usual share of the rise
        warmup = max(1, round(0.3 * total_steps)) if total_steps > 1 else 0
    if step < warmup:
        return _rise(schedule, step, warmup)
    if schedule.name == "constant":
        return 1.0
    through = min(1.0, (step - warmup) / max(1, total_steps - warmup))
    low = schedule.final_share
    if schedule.name == "linear":
        return low + (1 - low) * (1 - through)
    return low + (1 - low) * 0.5 * (1 + math.cos(math.pi * through))


def _rise(schedule: Schedule, step: int, warmup: int) -> float:
    """Linear from 1/warmup; one_cycle rises along a cosine from a 25th, as its authors do."""
    if schedule.name != "one_cycle":
        return (step + 1) / warmup
    start = 1 / 25
    return start + (1 - start) * 0.5 * (1 - math.cos(math.pi * (step + 1) / warmup))


def batch_factor(rule: str, optimizer_name: str, global_batch: int, reference_batch: int) -> tuple[float, str]:
    """(what the learning rate is multiplied by for another global batch, the rule's name).

    `auto` is the square root for optimizers that divide by a running norm of the gradient, else linear.
    """
    if rule == "off" or global_batch == reference_batch:
        return 1.0, "off"
    lowered = optimizer_name.lower()
    adaptive = any(sign in lowered for sign in ("ada", "lamb", "rmsprop", "lion", "sophia", "shampoo", "prodigy"))
    chosen = ("sqrt" if adaptive else "linear") if rule == "auto" else rule
    ratio = global_batch / reference_batch
    return (math.sqrt(ratio) if chosen == "sqrt" else ratio), chosen
