"""What shapes a step's memory besides the config."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """Whose kernels ('cpu' or 'cuda'), the precision ('fp32', 'bf16', 'fp16') and the switches of a profile.

    `fused` says whether an optimizer with a fused kernel may use it, as training does unless a profile says no.
    """

    like: str = "cpu"
    precision: str = "fp32"
    activation_checkpointing: bool = False
    accumulation: int = 1
    channels_last: bool = False
    fused: bool = True
