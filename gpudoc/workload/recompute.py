"""Activation checkpointing for any model: backward recomputes the parts of repeated blocks that a policy selects."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from gpudoc.errors import GpudocError
from gpudoc.policy import SELECTIVE, Policy, num_blocks
from gpudoc.workload.products import is_product

if TYPE_CHECKING:
    from gpudoc.workload.build import Workload

_Contexts = tuple[AbstractContextManager[object], AbstractContextManager[object]]
_HAS_SELECTIVE = hasattr(torch.utils.checkpoint, "create_selective_checkpoint_contexts")
# torch's messages if a block differs between forward and backward, or changed a kept tensor
_REFUSALS = ("selective activation checkpoint", "encountered during backward but not found in storage")


def can_recompute(model: nn.Module) -> bool:
    """Whether `apply` would find something to recompute; changes nothing."""
    return _has_own_switch(model) or bool(find_blocks(model))


def policies_for(model: nn.Module) -> tuple[bool, int]:
    """Whether the model can be recomputed selectively, and how many of its blocks a policy may choose from."""
    if _has_own_switch(model):
        return _HAS_SELECTIVE and _takes_arguments(model), 0
    blocks = len(find_blocks(model))
    return _HAS_SELECTIVE and blocks > 0, blocks


def policies_of(workload: Workload) -> tuple[bool, int]:
    """The same for a workload's model, built without memory; (False, 0) if that fails."""
    try:
        with torch.device("meta"):
            return policies_for(workload.build_model())
    except Exception:
        # the user's code was not written for the meta device
        return False, 0


def apply(model: nn.Module, policy: Policy = True) -> int:
    """Recompute the model's repeated blocks from now on as `policy` says; returns their number, 0 if it has none.

    Names do not change. A later call replaces an earlier one. A model with its own switch
    (`gradient_checkpointing_enable`) is asked to do it itself. GpudocError if the model does not allow the policy.
    """
    if not policy:
        return 0
    if policy == SELECTIVE and not _HAS_SELECTIVE:
        raise GpudocError(
            f"activation_checkpointing selective: PyTorch {torch.__version__} cannot recompute selectively",
            hint="PyTorch 2.4 or later, or --set activation_checkpointing=true",
        )
    if _has_own_switch(model):
        _ask(model, policy)
        return 1
    blocks = find_blocks(model)
    if policy is not True and not blocks:
        raise GpudocError(
            f"activation_checkpointing {policy}: the model has no repeated blocks (two or more parts in a ModuleList "
            "or Sequential)",
            hint="--set activation_checkpointing=false",
        )
    count = num_blocks(policy) or len(blocks)
    if count > len(blocks):
        raise GpudocError(
            f"activation_checkpointing {policy}: the model has {len(blocks)} repeated blocks",
            hint=f"--set activation_checkpointing=blocks:{len(blocks)}",
        )
    # backward frees the last blocks' activations first, so the policy spares those that are held longest
    for block in blocks[:count]:
        _wrap(block, selectively=policy == SELECTIVE)
    return count


def find_blocks(model: nn.Module) -> list[nn.Module]:
    """The outermost members of every list of at least two modules that have parameters and parts."""
    found: list[nn.Module] = []
    taken: set[nn.Module] = set()
    for module in model.modules():
        if module in taken or not isinstance(module, nn.ModuleList | nn.Sequential):
            continue
        parts = [child for child in module.children() if _is_block(child)]
        if len(parts) >= 2:
            found += parts
            taken.update(inner for part in parts for inner in part.modules())
    return found


def _has_own_switch(model: nn.Module) -> bool:
    # all models of transformers have the method; those without support say so and raise if it is called
    can = getattr(model, "supports_gradient_checkpointing", True)
    return bool(can) and callable(getattr(model, "gradient_checkpointing_enable", None))


def _takes_arguments(model: nn.Module) -> bool:
    return "gradient_checkpointing_kwargs" in inspect.signature(model.gradient_checkpointing_enable).parameters  # type: ignore[arg-type]


def _ask(model: nn.Module, policy: Policy) -> None:
    if policy is True:
        model.gradient_checkpointing_enable()  # type: ignore[operator]
    elif policy == SELECTIVE and _takes_arguments(model):
        model.gradient_checkpointing_enable(  # type: ignore[operator]
            gradient_checkpointing_kwargs={"use_reentrant": False, "context_fn": _keeping_products}
        )
    else:
        raise GpudocError(
            f"activation_checkpointing {policy}: the model recomputes through its own switch, which does not support "
            "this",
            hint="--set activation_checkpointing=true",
        )


def _is_block(module: nn.Module) -> bool:
    has_parts = any(True for _ in module.children())
    return has_parts and any(parameter.requires_grad for parameter in module.parameters())


def _wrap(block: nn.Module, *, selectively: bool) -> None:
    # a later policy replaces an earlier one
    inner = getattr(block.forward, "plain", block.forward)

    def forward(*args: object, **kwargs: object) -> object:
        if not torch.is_grad_enabled() or not block.training:
            return inner(*args, **kwargs)
        call = functools.partial(inner, **kwargs)
        if not torch.compiler.is_compiling():
            return checkpoint(call, *args, use_reentrant=False, context_fn=contexts)
        # a compiled backward repeats the computation of activations, but no change of a buffer; the only contexts
        # that it accepts are dispatch modes
        if selectively:
            return checkpoint(call, *args, use_reentrant=False, context_fn=_keeping_products)
        return checkpoint(call, *args, use_reentrant=False)

    def contexts() -> _Contexts:
        if not selectively:
            return nullcontext(), _second_forward(block)
        first, second = _keeping_products()
        return first, _selective_forward(block, second)

    forward.plain = inner  # type: ignore[attr-defined]
    block.forward = forward


def _is_kept(_context: object, func: object, *_args: object, **_kwargs: object) -> bool:
    return is_product(func)


def _keeping_products() -> _Contexts:
    contexts: _Contexts = torch.utils.checkpoint.create_selective_checkpoint_contexts(_is_kept)  # type: ignore[no-untyped-call]
    return contexts


@contextmanager
def _selective_forward(block: nn.Module, kept: AbstractContextManager[object]) -> Iterator[None]:
    """The second forward in the context `kept`, which expects only the block's own operations, no copies of buffers."""
    try:
        with _second_forward(block), kept:
            yield
    except RuntimeError as problem:
        if not any(text in str(problem) for text in _REFUSALS):
            raise
        raise GpudocError(
            f"selective activation checkpointing does not suit {type(block).__name__}, which changes a product in "
            f"place or computes something different the second time: {problem}",
            hint="--set activation_checkpointing=true",
        ) from problem


def is_again() -> bool:
    """Whether this thread is computing a block of `apply` a second time, in backward."""
    return getattr(_this_thread, "depth", 0) > 0


_this_thread = threading.local()


@contextmanager
def _second_forward(block: nn.Module) -> Iterator[None]:
    """Restores the buffers: the second forward must not update batch norm's running statistics again."""
    _this_thread.depth = getattr(_this_thread, "depth", 0) + 1
    buffers = [buffer for buffer in block.buffers() if buffer is not None]
    copies = [buffer.detach().clone() for buffer in buffers]
    try:
        yield
    finally:
        _this_thread.depth -= 1
        with torch.no_grad():
            for buffer, copy in zip(buffers, copies, strict=True):
                buffer.copy_(copy)
