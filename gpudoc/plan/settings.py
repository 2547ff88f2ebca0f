"""Settings other than the config that affect a step's memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpudoc.policy import Policy
from gpudoc.workload.config import Fsdp


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanSettings:
    """The kernels ('cpu' or 'cuda'), the precision ('fp32', 'bf16', 'fp16') and the switches of a profile.

    `fused` says whether an optimizer with a fused kernel may use it, as training does unless a profile says no. If
    `ranks` is more than one, the model is spread over them as `fsdp` says, and the step is that of one rank.
    """

    like: str = "cpu"
    precision: str = "fp32"
    activation_checkpointing: Policy = False
    accumulation: int = 1
    channels_last: bool = False
    fused: bool = True
    ranks: int = 1
    fsdp: Fsdp = field(default_factory=Fsdp)
