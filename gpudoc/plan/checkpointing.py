"""Activation checkpointing in a plan: the blocks that the trainer would recompute, recomputed under fake tensors."""

from __future__ import annotations

import functools

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


def checkpoint_blocks(model: nn.Module) -> int:
    """Recompute every repeated block of `model`; how many, 0 where nothing repeats.

    Blocks are the outermost members, with parameters and parts of their own, of a list of at least two; a model with
    its own switch (`gradient_checkpointing_enable`) does it itself.
    """
    own = getattr(model, "gradient_checkpointing_enable", None)
    if callable(own):
        own()
        return 1
    taken: set[nn.Module] = set()
    count = 0
    for container in model.modules():
        if container in taken or not isinstance(container, (nn.ModuleList, nn.Sequential)):
            continue
        blocks = [child for child in container.children() if _is_block(child)]
        if len(blocks) > 1:
            count += len(blocks)
            for block in blocks:
                taken.update(block.modules())
                _recompute(block)
    return count


def _is_block(module: nn.Module) -> bool:
    has_parts = any(True for _ in module.children())
    return has_parts and any(parameter.requires_grad for parameter in module.parameters())


def _recompute(block: nn.Module) -> None:
    forward = block.forward

    def recomputed(*args: object, **kwargs: object) -> object:
        if not block.training or not torch.is_grad_enabled():
            return forward(*args, **kwargs)
        return checkpoint(functools.partial(forward, **kwargs), *args, use_reentrant=False)

    block.forward = recomputed
