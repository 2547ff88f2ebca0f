"""Whether what is trained still consists of numbers."""

from __future__ import annotations

import sys
from typing import Any

# a loss that is NaN makes every weight NaN that it depends on, so that the smallest tell
_MOST_WEIGHTS = 16


def are_finite(optimizer: Any) -> bool | None:
    """False where weights of the optimizer are NaN or infinite; waits for the device.

    None where none can be looked at: those that are spread over ranks would have all of them take part.
    """
    torch: Any = sys.modules["torch"]
    plain = (torch.nn.Parameter, torch.Tensor)
    weights = [
        weight
        for group in optimizer.param_groups
        for weight in group["params"]
        if type(weight) in plain and weight.is_floating_point() and weight.numel() and weight.device.type != "meta"
    ]
    weights.sort(key=lambda weight: int(weight.numel()))
    try:
        return all(bool(torch.isfinite(weight).all()) for weight in weights[:_MOST_WEIGHTS]) if weights else None
    except (RuntimeError, TypeError):
        # of a layout that cannot be asked
        return None
