"""Whether a variant trains like the reference: the losses of its first steps against the reference's; pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpudoc.profile.model import LossDeviation

LEAST_STEPS, MOST_STEPS = 3, 5
# How far the losses of the first steps may differ from those in fp32, by the coarsest format in use. A sum in another
# order changes a loss by some 1e-6, and Adam, which divides by the gradient's size, lets that grow from step to step.
# TF32 and fp16 keep 11 bits (5e-4 of each number), bf16 8 bits (4e-3): some five to ten times that over a few steps.
# A state of 8 bits rounds Adam's moments after each update: 6e-5 of the loss after eight steps of the quickstart.
BOUNDS: Mapping[str, float] = {"fp32": 0.001, "tf32": 0.005, "fp16": 0.005, "bf16": 0.02, "8bit": 0.005}
# two runs show only part of the possible effect of chance on the losses
_CHANCE = 3.0


@dataclass(frozen=True, slots=True)
class Reference:
    """The losses to compare a variant's with; `again` holds those with other random numbers, if a step draws any."""

    losses: tuple[float, ...]
    again: tuple[float, ...] | None = None

    @property
    def chance(self) -> float:
        """How far the losses may differ because of random numbers alone; infinite if unknown."""
        if self.again is None:
            return 0.0
        apart = _difference(self.again, self.losses)
        return math.inf if apart is None else _CHANCE * apart

    def compare(self, losses: Sequence[float], tolerance: float) -> LossDeviation | None:
        """The losses against the reference's; None if the reference has too few to compare with."""
        steps = min(len(losses), len(self.losses))
        if len(self.losses) < LEAST_STEPS or not math.isfinite(self.chance):
            return None
        # a trial makes fewer steps only if a loss or gradient was not finite
        difference = None if steps < LEAST_STEPS else _difference(losses, self.losses)
        return LossDeviation(steps=steps, difference=difference, bound=tolerance + self.chance)


def agree(found: LossDeviation | None) -> bool:
    """Whether the losses were compared and lie within the bound."""
    return found is not None and found.difference is not None and found.difference <= found.bound


def explain_losses(found: LossDeviation | None) -> str:
    """The check and its numbers in a few words."""
    if found is None:
        return "losses could not be compared: the reference's are not finite"
    if found.difference is None:
        return f"loss or gradients not finite after {found.steps} of the first steps"
    return (
        f"losses of the first {found.steps} steps differ by {percent(found.difference)}"
        f" ({percent(found.bound)} allowed)"
    )


def percent(share: float) -> str:
    """A share with two digits: '0.31 %', '2 %'; '< 0.001 %' for smaller shares."""
    return f"{100 * share:.2g} %" if share == 0 or share >= 1e-5 else "< 0.001 %"


def _difference(losses: Sequence[float], reference: Sequence[float]) -> float | None:
    """The largest difference of any step over the mean size of the reference; None if a loss is not finite."""
    pairs = list(zip(losses, reference, strict=False))
    if not pairs or not all(math.isfinite(value) for pair in pairs for value in pair):
        return None
    size = sum(abs(known) for _, known in pairs) / len(pairs)
    largest = max(abs(found - known) for found, known in pairs)
    return 0.0 if largest == 0 else largest / size if size else None
