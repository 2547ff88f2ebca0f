"""What the machine is. The only code that touches NVML, /proc, /sys, nvidia-smi and other processes.

One door each: `collect` for this machine, `readers.read` for somebody's text, `watch` for a running job, `launch` for
one that is to be started and watched.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from gpudoc.facts.collect import Deadlines, collect

if TYPE_CHECKING:
    from gpudoc.facts.live.job import CommandOutcome, Listener, launch
    from gpudoc.facts.live.session import watch

__all__ = ["CommandOutcome", "Deadlines", "Listener", "collect", "launch", "watch"]

_LIVE = {"CommandOutcome": "job", "Listener": "job", "launch": "job", "watch": "session"}


def __getattr__(name: str) -> object:
    # who judges facts or a text watches nothing, and is spared a fifth of the imports
    if name not in _LIVE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.live.{_LIVE[name]}"), name)
