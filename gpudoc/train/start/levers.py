"""What each lever of a profile does to a step: one function per lever, called where the parts are built."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from gpudoc.errors import GpudocError
from gpudoc.workload.build import Workload
from gpudoc.workload.recompute import find_blocks

Forward = Callable[..., object]

# the optimizers of torch that step in one fused kernel, by device
_FUSED = {
    "cuda": ("Adam", "AdamW", "SGD"),
    "cpu": ("Adam", "AdamW", "SGD", "Adagrad"),
}
# torch shards these kernels over ranks; for the others it has no sharding strategy registered (2.13)
_FUSED_SHARDED = ("Adam", "AdamW")
# those with a form over lists of tensors
_FOREACH = ("Adam", "AdamW", "SGD", "Adagrad", "RMSprop", "NAdam", "RAdam", "Adamax", "Adadelta", "ASGD", "Rprop")


def set_backends(matmul_precision: str, *, cudnn_benchmark: bool) -> None:
    """Torch's switches for the whole process; what is not asked for stays as torch or the user's code set it."""
    if matmul_precision != "default":
        torch.set_float32_matmul_precision(matmul_precision)
    # the fastest algorithm may be another one each time
    if cudnn_benchmark and not torch.are_deterministic_algorithms_enabled():
        torch.backends.cudnn.benchmark = True


def form_of_optimizer(
    workload: Workload, model: nn.Module, device: torch.device, *, fused: bool, foreach: bool, sharded: bool
) -> dict[str, object]:
    """The arguments that choose the optimizer's kernels, where it has those that are asked for."""
    if foreach and may_foreach(workload, model):
        return {"foreach": True}
    return {"fused": True} if fused and may_fuse(workload, model, device, sharded=sharded) else {}


def may_fuse(workload: Workload, model: nn.Module, device: torch.device, *, sharded: bool = False) -> bool:
    """Whether torch has a fused kernel for this optimizer on `device`, and the config does not choose a form itself."""
    if not _is_one_of(workload, _FUSED.get(device.type, ())) or (sharded and not _is_one_of(workload, _FUSED_SHARDED)):
        return False
    return _is_dense(model) and all(parameter.is_floating_point() for parameter in model.parameters())


def may_foreach(workload: Workload, model: nn.Module) -> bool:
    """Whether torch steps this optimizer over lists of tensors, and the config does not choose a form itself."""
    return _is_one_of(workload, _FOREACH) and _is_dense(model)


def _is_one_of(workload: Workload, names: tuple[str, ...]) -> bool:
    module, _, name = workload.config.optimizer.target.partition(":")
    chosen = {"fused", "foreach", "capturable", "differentiable"} & set(workload.config.optimizer.args)
    return not chosen and module.startswith("torch.optim") and name in names


def _is_dense(model: nn.Module) -> bool:
    return not any(getattr(part, "sparse", False) for part in model.modules())


def compile_inside(model: nn.Module, mode: str) -> None:
    """With the mode 'blocks', compile each of the model's repeated blocks, which share their code; names stay.

    https://docs.pytorch.org/tutorials/recipes/regional_compilation.html; GpudocError where the model has none.
    """
    if mode != "blocks":
        return
    blocks = find_blocks(model)
    if not blocks:
        raise GpudocError(
            "compile_mode blocks: the model has no repeated blocks (two or more parts in a ModuleList or Sequential)",
            hint="--set compile_mode=whole",
        )
    for block in blocks:
        block.compile()


def compile_around(forward: Forward, mode: str) -> Forward:
    """The forward compiled as `mode` says; with 'blocks' it stays, since what is compiled lies inside."""
    match mode:
        case "blocks":
            return forward
        case "reduce-overhead":
            return torch.compile(forward, mode="reduce-overhead")
        case "dynamic":
            return torch.compile(forward, dynamic=True)
        case _:
            return torch.compile(forward)
