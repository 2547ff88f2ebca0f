"""How much memory a trial may have, and how that is made real: RLIMIT_DATA on a Linux CPU, a share of the card on CUDA."""

from __future__ import annotations

import math
import os
import resource
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gpudoc.tune.trial import Allocator

# With glibc's own settings blocks above the threshold stay in arenas and the heap: the largest batch then wanders from
# run to run and is up to 23 % lower (measured on this recipe's introduction: 119 to 120 instead of 155 samples).
_EXACT_MALLOC = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": "1048576",
    "MALLOC_TRIM_THRESHOLD_": "1048576",
}
_EXPANDABLE = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
_CGROUP_ROOT = Path("/sys/fs/cgroup")
# cgroup v1 writes "no limit" as the largest page-aligned 63 bit number
_NO_LIMIT = 1 << 60


def allocator_environment(allocator: Allocator) -> Mapping[str, str]:
    """The environment variables that a process must be started with to have this allocator."""
    match allocator:
        case "exact":
            return _EXACT_MALLOC
        case "expandable":
            return _EXPANDABLE
        case "default":
            return {}


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    """This process's private memory in bytes: now, and at its highest since the process began (VmData, VmPeak)."""

    data_bytes: int
    peak_data_bytes: int


def read_process_memory() -> ProcessMemory:
    """What counts against RLIMIT_DATA (`grep -E 'VmData|VmPeak|VmSize' /proc/self/status`)."""
    sizes = {}
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name in ("VmPeak", "VmSize", "VmData"):
            sizes[name] = int(rest.split()[0]) * 1024
    # only the total has a recorded peak; what is not data (code, stacks, shared memory) is taken as it is now
    return ProcessMemory(sizes["VmData"], sizes["VmPeak"] - (sizes["VmSize"] - sizes["VmData"]))


def apply_data_limit(limit_bytes: int) -> None:
    """Make this process live under `limit_bytes` of private memory; only the soft limit, so that it can be lifted."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard != resource.RLIM_INFINITY:
        limit_bytes = min(limit_bytes, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, hard))


def lift_data_limit() -> None:
    """Raise the soft limit back to the hard one, as loader workers do: a fork inherits its parent's usage."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))


def free_host_bytes() -> int:
    """Memory a new process may take: the smaller of MemAvailable and every enclosing cgroup's headroom."""
    return min([_available_bytes(), *_cgroup_headrooms()])


def default_host_limit() -> int:
    """Half of what is free, to leave room for the loader, the page cache and other programs."""
    return free_host_bytes() // 2


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


def usable_cpus() -> int:
    """CPUs this process may use: affinity, and the cgroup's quota rounded up."""
    count = len(os.sched_getaffinity(0))
    quotas = [quota for folder in _cgroup_folders("cpu") if (quota := _cpu_quota(folder)) is not None]
    return max(1, min([count, *(math.ceil(quota) for quota in quotas)]))


def _cpu_quota(folder: Path) -> float | None:
    try:
        quota, period = (folder / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        pass
    try:
        quota_us = int((folder / "cpu.cfs_quota_us").read_text())
        period_us = int((folder / "cpu.cfs_period_us").read_text())
        return quota_us / period_us if quota_us > 0 else None
    except (OSError, ValueError):
        return None


def _available_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _cgroup_headrooms() -> list[int]:
    headrooms = []
    for folder in _cgroup_folders():
        for limit_name, used_name in (
            ("memory.max", "memory.current"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ):
            limit, used = _number(folder / limit_name), _number(folder / used_name)
            if limit is not None and used is not None and limit < _NO_LIMIT:
                headrooms.append(max(0, limit - used + (_reclaimable(folder) or 0)))
    return headrooms


def _reclaimable(folder: Path) -> int | None:
    """Page cache that the kernel would give back first, so that it does not count as used."""
    try:
        lines = (folder / "memory.stat").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("inactive_file ")), None)


def _cgroup_folders(controller: str = "memory") -> list[Path]:
    """This process's cgroup and its parents, of version 2 or of the version 1 controller."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    folders = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        root = _CGROUP_ROOT / controller if controllers else _CGROUP_ROOT
        own = root / path.lstrip("/")
        folders += [folder for folder in (own, *own.parents) if folder == root or root in folder.parents]
    return folders


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
