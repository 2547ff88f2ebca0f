"""The products of a step, which are nearly all of its arithmetic: their operations, and the cost of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.flop_counter import flop_registry

if TYPE_CHECKING:
    from torch._ops import OpOverload

_FLASH_FOR_CPU = "_scaled_dot_product_flash_attention_for_cpu"


def is_product(func: object) -> bool:
    """Whether an operation is a matrix product, a convolution or attention, forward or backward."""
    packet = getattr(func, "_overloadpacket", None)
    return packet in flop_registry or getattr(packet, "__name__", "").startswith(_FLASH_FOR_CPU)


def flops_of(func: OpOverload, args: Sequence[Any], kwargs: dict[str, Any], out: object) -> int:
    """Two for each multiply-add of products, convolutions and attention; 0 for everything else."""
    name = func._overloadpacket.__name__
    if name == _FLASH_FOR_CPU:
        return _attention_flops(args[0], args[1], args[2])
    if name == f"{_FLASH_FOR_CPU}_backward":
        # five products of the forward's size instead of two; one of them recomputes the scores
        return _attention_flops(args[1], args[2], args[3]) * 5 // 2
    formula = flop_registry.get(func._overloadpacket)
    return 0 if formula is None else int(formula(*args, **kwargs, out_val=out))


def _attention_flops(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> int:
    batch, heads, rows, width = query.shape
    columns = key.shape[-2]
    return 2 * batch * heads * rows * columns * (width + value.shape[-1])
