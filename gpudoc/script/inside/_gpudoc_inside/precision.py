"""In which formats the script computes: autocast's when it was entered, TF32, and the parameters'."""

from __future__ import annotations

import functools
import sys
from typing import Any, Callable

from .report import HookReport

_entered: str | None = None


def watch(report: HookReport) -> Callable[[Any], None]:
    """What to do with the module of autocast: note the format of each one that is entered."""

    def torch_is_here(module: Any) -> None:
        kind = module.autocast
        enter = kind.__enter__

        @functools.wraps(enter)
        def entered(self: Any) -> Any:
            global _entered
            if getattr(self, "_enabled", True):
                _entered = str(getattr(self, "fast_dtype", "")).replace("torch.", "") or None
            return enter(self)

        kind.__enter__ = entered
        report.undo.append(lambda: setattr(kind, "__enter__", enter))

    return torch_is_here


def autocast() -> str | None:
    """The format of the last autocast that was entered, as torch names it; None when none was."""
    return _entered


def tf32() -> bool | None:
    """Whether matrix products of fp32 may use TF32; None where torch does not say."""
    torch: Any = sys.modules["torch"]
    try:
        return bool(torch.get_float32_matmul_precision() != "highest")
    except (AttributeError, RuntimeError):
        return None
