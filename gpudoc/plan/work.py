"""Floating-point operations and moved bytes of one operation, from the shapes of its tensors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from gpudoc.plan.tape import Work
from gpudoc.workload.products import flops_of

if TYPE_CHECKING:
    from torch._ops import OpOverload


def weigh(func: OpOverload, args: Sequence[Any], kwargs: dict[str, Any], out: object) -> Work | None:
    """The work of one call; None for an operation that touches no tensor."""
    name = str(func._schema.name).removeprefix("aten::")
    # an exchange returns its own arguments
    results = () if name.startswith("c10d::") else (out,)
    tensors = [*_flat(args), *_flat(kwargs.values()), *_flat(results)]
    if not tensors:
        return None
    dtype = next((t.dtype for t in tensors if t.dtype.is_floating_point), tensors[0].dtype)
    moved = sum(_touched_bytes(tensor) for tensor in tensors)
    return Work(name, str(dtype).removeprefix("torch."), flops_of(func, args, kwargs, out), moved)


def _touched_bytes(tensor: torch.Tensor) -> int:
    # an expanded tensor reads its storage once, however often it repeats
    return min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes())


def _flat(items: Iterable[Any]) -> Iterable[torch.Tensor]:
    for item in items:
        if isinstance(item, torch.Tensor):
            yield item
        elif isinstance(item, (list, tuple)):
            yield from _flat(item)
