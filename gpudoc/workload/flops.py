"""Floating-point operations of a step, counted while it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch.utils._python_dispatch import TorchDispatchMode

from gpudoc.workload import recompute
from gpudoc.workload.products import flops_of

if TYPE_CHECKING:
    from torch._ops import OpOverload


class Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts while it is active. `model` are the model's own operations, `again` those that blocks recompute.

    It cannot see the operations of a compiled function.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.model = 0
        self.again = 0

    def __torch_dispatch__(
        self, func: OpOverload, types: object, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> object:
        del types
        out = func(*args, **(kwargs or {}))
        count = flops_of(func, args, kwargs or {}, out)
        if count and recompute.is_again():
            self.again += count
        else:
            self.model += count
        return out
