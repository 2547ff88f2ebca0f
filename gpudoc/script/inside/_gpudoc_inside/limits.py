"""Memory limits of a trial: its loader workers are free of that on the host, torch keeps below that on the GPU.

A fork inherits what its parent holds, and would count it.
"""

from __future__ import annotations

import os
import threading
from typing import Any, Callable

from .report import HookReport, launched_ranks

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


def limit_device(report: HookReport, torch: Any) -> None:
    """Let torch take so much of its GPU as is ordered, once the script has started CUDA by itself."""
    limit, index = report.order.get("device_limit_bytes"), report.order.get("device_index")
    if limit is None:
        return
    local_rank = launched_ranks()[1]
    device = int(local_rank or 0) if index is None else int(index)

    def started() -> None:
        with report.guard("the memory limit of the GPU"):
            total = torch.cuda.get_device_properties(device).total_memory
            torch.cuda.set_per_process_memory_fraction(min(1.0, limit / total), device)

    # what torch itself does with a seed that is set before CUDA has started
    torch.cuda._lazy_call(started)


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
