"""Loader workers are free of the memory limit of a trial: a fork inherits what its parent holds, and would count it."""

from __future__ import annotations

import os
import threading
from typing import Any, Callable

_starting = threading.local()
_registered = False


def starting_workers(make: Callable[[Any], Any], loader: Any) -> Any:
    """What `make` makes of the loader; what this thread forks meanwhile has its soft limit raised to the hard one."""
    if not getattr(loader, "num_workers", 0):
        return make(loader)
    _register()
    _starting.now = True
    try:
        return make(loader)
    finally:
        _starting.now = False


def _register() -> None:
    global _registered
    if not _registered and hasattr(os, "register_at_fork"):
        _registered = True
        os.register_at_fork(after_in_child=_lift)


def _lift() -> None:
    if not getattr(_starting, "now", False):
        return
    try:
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))
    except Exception:  # a worker with a limit is better than none
        return
