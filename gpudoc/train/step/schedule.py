"""The learning rate as a pure function of the step: nothing to save, nothing to restore."""

from __future__ import annotations

import math

import torch

from gpudoc.workload.config import Schedule


class Rates:
    """Sets the learning rate of each parameter group before its update, as a multiple of `base`."""

    def __init__(self, schedule: Schedule, optimizer: torch.optim.Optimizer, total_steps: int) -> None:
        self.base = [_number(group["lr"]) for group in optimizer.param_groups]
        self._schedule = schedule
        self._optimizer = optimizer
        self._total_steps = total_steps
        self._factor = -1.0
        self._stays = schedule.name == "constant" and schedule.warmup_steps == 0

    def set(self, step: int) -> None:
        """Set the learning rate of `step`, from 0."""
        if self._stays and self._factor > 0:
            return
        now = factor(self._schedule, step, self._total_steps)
        if now == self._factor:
            return
        self._factor = now
        for group, base in zip(self._optimizer.param_groups, self.base, strict=True):
            if isinstance(group["lr"], torch.Tensor):
                group["lr"].fill_(base * now)
            else:
                group["lr"] = base * now


def factor(schedule: Schedule, step: int, total_steps: int) -> float:
    """The factor of the base learning rate in `step` (from 0) of `total_steps`; one_cycle peaks at 1."""
    warmup = min(schedule.warmup_steps, max(0, total_steps - 1))
    if schedule.name == "one_cycle" and warmup == 0:
        # the usual share of one_cycle's rise
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
    """(the factor of the learning rate for another global batch, the rule's name).

    `auto` is the square root for optimizers that divide by a running norm of the gradient, else linear.
    """
    if rule == "off" or global_batch == reference_batch:
        return 1.0, "off"
    lowered = optimizer_name.lower()
    adaptive = any(sign in lowered for sign in ("ada", "lamb", "rmsprop", "lion", "sophia", "shampoo", "prodigy"))
    chosen = ("sqrt" if adaptive else "linear") if rule == "auto" else rule
    ratio = global_batch / reference_batch
    return (math.sqrt(ratio) if chosen == "sqrt" else ratio), chosen


def _number(value: float | torch.Tensor) -> float:
    return float(value.item()) if isinstance(value, torch.Tensor) else float(value)
