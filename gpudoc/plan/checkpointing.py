"""Activation checkpointing without touching the user's code: the repeated blocks are recomputed in the backward pass."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint


def checkpoint_blocks(model: nn.Module) -> int:
    """Recompute every repeated block of `model`; the number of blocks, 0 where nothing repeats.

    A block is a child of a ModuleList or Sequential that has at least two children of one class with parameters.
    """
    count = 0
    for container in model.modules():
        if isinstance(container, (nn.ModuleList, nn.Sequential)):
            for block in _repeated(container):
                _recompute(block)
                count += 1
    return count


def _repeated(container: nn.ModuleList | nn.Sequential) -> list[nn.Module]:
    children = [child for child in container if any(True for _ in child.parameters())]
    composed = [child for child in children if any(True for _ in child.children())]
    classes = {type(child) for child in composed}
    return composed if len(composed) > 1 and len(classes) < len(composed) else []


def _recompute(block: nn.Module) -> None:
    forward = block.forward

    def recomputed(*args: Any, **kwargs: Any) -> object:
        if not block.training:
            return forward(*args, **kwargs)
        return checkpoint(forward, *args, use_reentrant=False, **kwargs)

    block.forward = recomputed  # type: ignore[method-assign]
