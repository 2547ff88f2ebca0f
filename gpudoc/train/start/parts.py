"""What a training step works on, built in one place: training, tune's trials and the plan all build it here."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch
from torch import nn

from gpudoc.train.ranks.protocol import Ranks
from gpudoc.train.step.precision import Precision
from gpudoc.train.step.step import Parts
from gpudoc.workload import recompute
from gpudoc.workload.build import Workload

# the optimizers of torch that step in one fused kernel, by device
_FUSED = {
    "cuda": ("Adam", "AdamW", "SGD"),
    "cpu": ("Adam", "AdamW", "SGD", "Adagrad"),
}
# torch shards these kernels over ranks; for the others it has no sharding strategy registered (2.13)
_FUSED_SHARDED = ("Adam", "AdamW")


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What shapes a step besides the workload, its batch and the device.

    `fused` allows a fused kernel where `may_fuse` finds one; `lr` None leaves the config's learning rate.
    """

    precision: Precision
    activation_checkpointing: bool = False
    channels_last: bool = False
    compile: bool = False
    fused: bool = True
    grad_clip: float | None = None
    lr: float | None = None


def build_parts(workload: Workload, model: nn.Module, form: Form, device: torch.device, ranks: Ranks) -> Parts:
    """The parts of a step for a `model` that is still where `workload.build_model` left it."""
    if not ranks.is_sharded:
        # sharding moves the model block by block: as a whole it may not fit
        model = model.to(device)
    if form.channels_last:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if form.activation_checkpointing:
        recompute.apply(model)
    overrides: dict[str, object] = {} if form.lr is None else {"lr": form.lr}
    if form.fused and may_fuse(workload, model, device, sharded=ranks.is_sharded):
        overrides["fused"] = True
    forward = ranks.wrap(model, form.precision.dtype)
    return Parts(
        model=model,
        forward=torch.compile(forward) if form.compile else forward,
        optimizer=workload.build_optimizer(model, overrides),
        step=workload.step().to(device),
        device=device,
        precision=form.precision,
        grad_clip=form.grad_clip,
        channels_last=form.channels_last,
        ranks=ranks,
    )


def may_fuse(workload: Workload, model: nn.Module, device: torch.device, *, sharded: bool = False) -> bool:
    """Whether torch has a fused kernel for this optimizer on `device`, and the config does not choose a form itself."""
    module, _, name = workload.config.optimizer.target.partition(":")
    chosen = {"fused", "foreach", "capturable", "differentiable"} & set(workload.config.optimizer.args)
    if chosen or not module.startswith("torch.optim") or name not in _FUSED.get(device.type, ()):
        return False
    if sharded and name not in _FUSED_SHARDED:
        return False
    sparse = any(getattr(part, "sparse", False) for part in model.modules())
    return not sparse and all(parameter.is_floating_point() for parameter in model.parameters())


def be_deterministic(device: torch.device) -> None:
    """Use kernels that give the same bits every time; on a GPU an operation that has none fails and is named."""
    # cuBLAS reads this when it starts
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    # with warn_only torch leaves attention's backward as it is; only where it may fail is that made deterministic
    torch.use_deterministic_algorithms(True, warn_only=device.type == "cpu")
    torch.backends.cudnn.benchmark = False
