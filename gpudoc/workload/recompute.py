"""Activation checkpointing for any model: repeated blocks are computed again in backward instead of being kept."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


def can_recompute(model: nn.Module) -> bool:
    """Whether `apply` would find something to recompute; changes nothing."""
    return _has_own_switch(model) or bool(find_blocks(model))


def apply(model: nn.Module) -> int:
    """Recompute the model's repeated blocks from now on; how many, 0 when it has none. Names do not change.

    A model with its own switch (`gradient_checkpointing_enable`) is asked to do it itself.
    """
    if _has_own_switch(model):
        model.gradient_checkpointing_enable()  # type: ignore[operator]
        return 1
    blocks = find_blocks(model)
    for block in blocks:
        _wrap(block)
    return len(blocks)


def find_blocks(model: nn.Module) -> list[nn.Module]:
    """The outermost members, with parameters and parts of their own, of every list of at least two modules."""
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
    # transformers' models all have the method; those that cannot do it say so and raise when asked
    can = getattr(model, "supports_gradient_checkpointing", True)
    return bool(can) and callable(getattr(model, "gradient_checkpointing_enable", None))


def _is_block(module: nn.Module) -> bool:
    has_parts = any(True for _ in module.children())
    return has_parts and any(parameter.requires_grad for parameter in module.parameters())


def _wrap(block: nn.Module) -> None:
    inner = block.forward

    def forward(*args: object, **kwargs: object) -> object:
        if not torch.is_grad_enabled() or not block.training:
            return inner(*args, **kwargs)
        call = functools.partial(inner, **kwargs)
        if torch.compiler.is_compiling():
            # a compiled backward repeats what computes activations, and no change of a buffer; of contexts it takes
            # dispatch modes alone
            return checkpoint(call, *args, use_reentrant=False)
        return checkpoint(call, *args, use_reentrant=False, context_fn=contexts)

    def contexts() -> tuple[AbstractContextManager[object], AbstractContextManager[object]]:
        return nullcontext(), _second_forward(block)

    block.forward = forward


def is_again() -> bool:
    """Whether this thread is computing a block of `apply` a second time, in backward."""
    return getattr(_this_thread, "depth", 0) > 0


_this_thread = threading.local()


@contextmanager
def _second_forward(block: nn.Module) -> Iterator[None]:
    """The second forward must not move batch norm's running statistics a second time."""
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
