"""Applies the levers of a profile to a step: one function per lever, called where the parts are built."""

from __future__ import annotations

import importlib.util
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
# torch can shard these kernels over ranks; for the others it has no sharding strategy registered (2.13)
_FUSED_SHARDED = ("Adam", "AdamW")
# the optimizers with a form over lists of tensors
_FOREACH = ("Adam", "AdamW", "SGD", "Adagrad", "RMSprop", "NAdam", "RAdam", "Adamax", "Adadelta", "ASGD", "Rprop")

# the optimizers that torchao has with a state of 8 bits, and the arguments that it accepts
_SMALL = {"Adam": "torchao.optim:Adam8bit", "AdamW": "torchao.optim:AdamW8bit"}
_SMALL_TAKES = frozenset({"lr", "betas", "eps", "weight_decay", "amsgrad"})


def set_backends(matmul_precision: str, *, cudnn_benchmark: bool) -> None:
    """Set torch's switches for the whole process; the others stay as torch or the user's code set them."""
    if matmul_precision != "default":
        torch.set_float32_matmul_precision(matmul_precision)
    # the fastest algorithm may be a different one each time
    if cudnn_benchmark and not torch.are_deterministic_algorithms_enabled():
        torch.backends.cudnn.benchmark = True


def form_of_optimizer(
    workload: Workload, model: nn.Module, device: torch.device, *, fused: bool, foreach: bool, sharded: bool
) -> dict[str, object]:
    """The arguments that choose the optimizer's kernels, empty if it does not have the requested ones."""
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


def small_twin(workload: Workload) -> str | None:
    """The target of the same optimizer with its state in 8 bits; None if torchao has none that accepts the config's
    arguments.
    """
    section = workload.config.optimizer
    module, _, name = section.target.partition(":")
    given = set(section.args).union(*(group.args for group in section.groups))
    return _SMALL.get(name) if module.startswith("torch.optim") and given <= _SMALL_TAKES else None


def has_torchao() -> bool:
    """Whether torchao, which can keep an optimizer's state in 8 bits, is installed."""
    return importlib.util.find_spec("torchao") is not None


def target_of_optimizer(workload: Workload, state: str, *, sharded: bool) -> str | None:
    """The optimizer that replaces the config's, if any; GpudocError if none has the requested state."""
    if state == "full":
        return None
    asked, hint = f"optimizer_state {state}", "--set optimizer_state=full"
    twin = small_twin(workload)
    if twin is None:
        took = ", ".join(sorted(_SMALL_TAKES))
        what = f"it works only for torch.optim's Adam and AdamW with no arguments other than {took}"
        raise GpudocError(f"{asked}: {what}; the config has {workload.config.optimizer.target}", hint=hint)
    if sharded:
        raise GpudocError(
            f"{asked} needs whole weights, but here they are spread over ranks as shards of plain tensors", hint=hint
        )
    if not has_torchao():
        raise GpudocError(f"{asked}: torchao, which has that optimizer, is not installed", hint="pip install torchao")
    return twin


def _is_one_of(workload: Workload, names: tuple[str, ...]) -> bool:
    module, _, name = workload.config.optimizer.target.partition(":")
    chosen = {"fused", "foreach", "capturable", "differentiable"} & set(workload.config.optimizer.args)
    return not chosen and module.startswith("torch.optim") and name in names


def _is_dense(model: nn.Module) -> bool:
    return not any(getattr(part, "sparse", False) for part in model.modules())


def compile_inside(model: nn.Module, mode: str) -> None:
    """With the mode 'blocks', compile each of the model's repeated blocks, which share their code; names stay.

    https://docs.pytorch.org/tutorials/recipes/regional_compilation.html; GpudocError if the model has none.
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
    """The forward compiled as `mode` says; unchanged for 'blocks', since the blocks inside are compiled."""
    match mode:
        case "blocks":
            return forward
        case "reduce-overhead":
            return torch.compile(forward, mode="reduce-overhead")
        case "dynamic":
            return torch.compile(forward, dynamic=True)
        case _:
            return torch.compile(forward)
