"""The facts about a machine. The only code that touches NVML, /proc, /sys, nvidia-smi and other processes.

One entry point each: `collect` for this machine, `readers.read` for pasted text, `watch` for a running job, `launch` to
start a job and watch it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpudoc.facts.collection import Deadlines, collect
    from gpudoc.facts.live.job import CommandOutcome, Listener, launch
    from gpudoc.facts.live.session import watch

__all__ = ["CommandOutcome", "Deadlines", "Listener", "collect", "launch", "watch"]

_PLACES = {
    **dict.fromkeys(("Deadlines", "collect"), "collection"),
    **dict.fromkeys(("CommandOutcome", "Listener", "launch"), "live.job"),
    "watch": "live.session",
}


def __getattr__(name: str) -> object:
    # judging a text needs neither a machine nor a job, so it does not pay for their imports
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
