"""Builds the parts of a training step, in one place for training, tune's trials and the plan."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch
from torch import nn

from gpudoc.policy import Policy
from gpudoc.profile.model import Levers
from gpudoc.train.ranks.protocol import Ranks
from gpudoc.train.start import levers
from gpudoc.train.start.levers import may_fuse as may_fuse
from gpudoc.train.step.precision import Precision
from gpudoc.train.step.step import Parts
from gpudoc.workload import recompute
from gpudoc.workload.build import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class StepForm:
    """The settings of a step besides the workload, its batch and the device.

    The levers are a profile's, except for the precision, which is already chosen; `lr` None keeps the config's
    learning rate.
    """

    precision: Precision
    activation_checkpointing: Policy = False
    channels_last: bool = False
    compile: bool = False
    compile_mode: str = "whole"
    fused: bool = True
    foreach: bool = False
    matmul_precision: str = "default"
    cudnn_benchmark: bool = False
    optimizer_state: str = "full"
    grad_clip: float | None = None
    lr: float | None = None


def form_of(
    source: object, precision: Precision, *, grad_clip: float | None = None, lr: float | None = None
) -> StepForm:
    """The form with the levers of `source`, which has them as attributes: a run's settings, a variant."""
    # the allocator and the threads' way of waiting are set when the process starts
    names = [name for name in Levers.model_fields if name not in ("precision", "allocator", "wait_policy")]
    return StepForm(precision=precision, grad_clip=grad_clip, lr=lr, **{name: getattr(source, name) for name in names})


def build_parts(workload: Workload, model: nn.Module, form: StepForm, device: torch.device, ranks: Ranks) -> Parts:
    """The parts of a step for a `model` that is still where `workload.build_model` left it."""
    if not ranks.is_sharded:
        # sharding moves the model block by block: as a whole it may not fit
        model = model.to(device)
    levers.set_backends(form.matmul_precision, cudnn_benchmark=form.cudnn_benchmark)
    if form.channels_last:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    recompute.apply(model, form.activation_checkpointing)
    if form.compile:
        levers.compile_inside(model, form.compile_mode)
    target = levers.target_of_optimizer(workload, form.optimizer_state, sharded=ranks.is_sharded)
    overrides: dict[str, object] = {}
    if target is None:
        overrides = levers.form_of_optimizer(
            workload, model, device, fused=form.fused, foreach=form.foreach, sharded=ranks.is_sharded
        )
    if form.lr is not None:
        overrides["lr"] = form.lr
    forward = ranks.wrap(model, form.precision.dtype)
    return Parts(
        model=model,
        forward=levers.compile_around(forward, form.compile_mode) if form.compile else forward,
        optimizer=workload.build_optimizer(model, overrides, target),
        step=workload.step().to(device),
        device=device,
        precision=form.precision,
        grad_clip=form.grad_clip,
        channels_last=form.channels_last,
        is_compiled=form.compile,
        replays_graphs=form.compile and form.compile_mode == "reduce-overhead",
        ranks=ranks,
    )


def be_deterministic(device: torch.device) -> None:
    """Use kernels that give the same bits every time; on a GPU an operation without one fails with its name."""
    # cuBLAS reads this when it starts
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    # with warn_only torch leaves attention's backward non-deterministic; it must be off to change that
    torch.use_deterministic_algorithms(True, warn_only=device.type == "cpu")
    torch.backends.cudnn.benchmark = False
