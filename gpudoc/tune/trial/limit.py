"""How much memory a trial may have, and how that is enforced: RLIMIT_DATA on a Linux CPU, a share of a CUDA card."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import torch

from gpudoc.errors import GpudocError
from gpudoc.facts.container import memory_headroom_bytes
from gpudoc.facts.host import memory_available_bytes
from gpudoc.facts.model import Absent
from gpudoc.train import limits
from gpudoc.train.limits import EXPANDABLE, MALLOC_ENVIRONMENT, ProcessMemory
from gpudoc.tune.trial.messages import Allocator

_CGROUP_ROOT = Path("/sys/fs/cgroup")


def allocator_environment(allocator: Allocator) -> Mapping[str, str]:
    """The environment variables that a process must be started with to have this allocator."""
    match allocator:
        case "exact":
            return MALLOC_ENVIRONMENT["exact"]
        case "expandable":
            return {"PYTORCH_CUDA_ALLOC_CONF": EXPANDABLE}
        case "default":
            return {}


def read_process_memory() -> ProcessMemory:
    """What counts against RLIMIT_DATA, here where `check_system` found it readable."""
    memory = limits.read_process_memory()
    assert memory is not None
    return memory


def check_system(on_gpu: bool) -> None:
    """GpudocError where trials cannot be started (no fork), or on a CPU not be limited (no /proc)."""
    hint = "on Windows: inside WSL 2; gpudoc train works here as well, with --batch-size N"
    if not hasattr(os, "fork"):
        raise GpudocError("tune starts its trials by fork, which this system does not have", hint=hint)
    if not on_gpu and not Path("/proc/self/status").exists():
        raise GpudocError("tune on a CPU needs a real memory limit, which only Linux has", hint=hint)


def apply_data_limit(limit_bytes: int) -> None:
    """Make this process live under `limit_bytes` of private memory; only the soft limit, so that it can be lifted."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard != resource.RLIM_INFINITY:
        limit_bytes = min(limit_bytes, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, hard))


def apply_limit(device: str, limit_bytes: int | None, besides: int = 0) -> None:
    """Make this process live under a trial's limit; on a CPU with so many bytes besides."""
    if limit_bytes is None:
        return
    if device == "cpu":
        apply_data_limit(limit_bytes + besides)
        return
    card = torch.device(device)
    total = torch.cuda.get_device_properties(card).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, limit_bytes / total), card)


def lift_data_limit() -> None:
    """Raise the soft limit back to the hard one, as loader workers do: a fork inherits its parent's usage."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))


def free_host_bytes() -> int:
    """Memory a new process may take: the smaller of MemAvailable and every enclosing cgroup's headroom."""
    known = [room for room in (memory_available_bytes(), memory_headroom_bytes()) if not isinstance(room, Absent)]
    if not known:
        raise GpudocError("how much memory is free cannot be read here", hint="say it: --memory-limit 8GiB")
    return min(known)


def cgroup_oom_kills() -> int:
    """How often the kernel killed in this process's cgroups (`cat memory.events`, `cat memory.oom_control`)."""
    kills = 0
    for folder in _cgroup_folders():
        for name in ("memory.events", "memory.oom_control"):
            try:
                lines = (folder / name).read_text().splitlines()
            except OSError:
                continue
            kills += sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))
    return kills


def _cgroup_folders() -> list[Path]:
    """This process's cgroup and its parents, of version 2 or of the memory controller of version 1."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    folders = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        root = _CGROUP_ROOT / "memory" if controllers else _CGROUP_ROOT
        own = root / path.lstrip("/")
        folders += [folder for folder in (own, *own.parents) if folder == root or root in folder.parents]
    return folders
