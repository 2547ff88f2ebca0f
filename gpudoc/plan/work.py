"""Floating-point operations and bytes moved of one operation, from the shapes of its tensors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.flop_counter import flop_registry

from gpudoc.plan.tape import Work

if TYPE_CHECKING:
    from torch._ops import OpOverload


def weigh(func: OpOverload, args: Sequence[Any], kwargs: dict[str, Any], out: object) -> Work | None:
    """The work of one call; None for an operation that touches no tensor."""
    tensors = [*_flat(args), *_flat(kwargs.values()), *_flat((out,))]
    if not tensors:
        return None
    dtype = next((t.dtype for t in tensors if t.dtype.is_floating_point), tensors[0].dtype)
    name = str(func._schema.name).removeprefix("aten::")
    moved = sum(_touched_bytes(tensor) for tensor in tensors)
    return Work(name, str(dtype).removeprefix("torch."), _flops(func, args, kwargs, out), moved)


def _flops(func: OpOverload, args: Sequence[Any], kwargs: dict[str, Any], out: object) -> int:
    name = func._overloadpacket.__name__
    if name == "_scaled_dot_product_flash_attention_for_cpu":
        return _attention_flops(args[0], args[1], args[2])
    if name == "_scaled_dot_product_flash_attention_for_cpu_backward":
        # five products of the forward's size against two, one of them the recomputed scores
        return _attention_flops(args[1], args[2], args[3]) * 5 // 2
    formula = flop_registry.get(func._overloadpacket)
    return 0 if formula is None else int(formula(*args, **kwargs, out_val=out))


def _attention_flops(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> int:
    batch, heads, rows, width = query.shape
    columns = key.shape[-2]
    return 2 * batch * heads * rows * columns * (width + value.shape[-1])


def _touched_bytes(tensor: torch.Tensor) -> int:
    # an expanded tensor reads its storage once, however often it repeats
    return min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes())


def _flat(items: Iterable[Any]) -> Iterable[torch.Tensor]:
    for item in items:
        if isinstance(item, torch.Tensor):
            yield item
        elif isinstance(item, (list, tuple)):
            yield from _flat(item)
