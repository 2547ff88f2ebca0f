"""What the machine is. The only code that touches NVML, /proc, /sys, nvidia-smi and other processes.

One door each: `collect` for this machine, `readers.read` for somebody's text, `watch` for a running job, `launch` for
one that is to be started and watched.
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
    # who judges a text neither asks a machine nor watches a job, and is spared what that imports
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
