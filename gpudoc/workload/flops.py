"""Floating-point operations: of one operation, from the shapes of its tensors, and of a step while it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from gpudoc.workload import recompute

if TYPE_CHECKING:
    from torch._ops import OpOverload


def flops_of(func: OpOverload, args: Sequence[Any], kwargs: dict[str, Any], out: object) -> int:
    """Two for each multiply-add of products, convolutions and attention; 0 for everything else."""
    name = func._overloadpacket.__name__
    if name == "_scaled_dot_product_flash_attention_for_cpu":
        return _attention_flops(args[0], args[1], args[2])
    if name == "_scaled_dot_product_flash_attention_for_cpu_backward":
        # five products of the forward's size against two, one of them the recomputed scores
        return _attention_flops(args[1], args[2], args[3]) * 5 // 2
    formula = flop_registry.get(func._overloadpacket)
    return 0 if formula is None else int(formula(*args, **kwargs, out_val=out))


class Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts while it is active. `model` is what the model asks for, `again` what blocks compute a second time.

    What a compiled function does is not seen.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.model = 0
        self.again = 0

    def __torch_dispatch__(
        self, func: OpOverload, types: object, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> object:
        """Run the operation as it is, and count it."""
        del types
        out = func(*args, **(kwargs or {}))
        count = flops_of(func, args, kwargs or {}, out)
        if count and recompute.is_again():
            self.again += count
        else:
            self.model += count
        return out


def _attention_flops(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> int:
    batch, heads, rows, width = query.shape
    columns = key.shape[-2]
    return 2 * batch * heads * rows * columns * (width + value.shape[-1])
