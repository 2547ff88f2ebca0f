"""Living under a memory limit, for real: a share of the card on CUDA, RLIMIT_DATA for a process on Linux."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

import torch

from gpudoc.errors import ExitCode, GpudocError
from gpudoc.facts.container import memory_headroom_bytes, memory_limit_bytes
from gpudoc.facts.host import memory_available_bytes, memory_total_bytes
from gpudoc.facts.model import Absent, Fact
from gpudoc.units import format_bytes

# glibc's settings per allocator of a profile; they act only from the start of a process. With glibc's own, blocks above
# the threshold stay in arenas and the heap: the largest batch then wanders and is up to 23 % lower (119 to 120 instead
# of 155 samples of a transformer under 1536 MiB, 2026-11-20)
MALLOC_ENVIRONMENT = {
    "exact": {
        "MALLOC_ARENA_MAX": "1",
        "MALLOC_MMAP_THRESHOLD_": "1048576",
        "MALLOC_TRIM_THRESHOLD_": "1048576",
    },
}
EXPANDABLE = "expandable_segments:True"


def apply(limit_bytes: int, device: torch.device) -> None:
    """Make this process live under `limit_bytes`; GpudocError when it already holds more or the system has no limit."""
    if device.type == "cuda":
        total = torch.cuda.get_device_properties(device).total_memory
        if limit_bytes < total:
            torch.cuda.set_per_process_memory_fraction(limit_bytes / total, device)
        return
    memory = read_process_memory()
    if memory is None:
        return
    held = memory.data_bytes
    if held >= limit_bytes:
        raise GpudocError(
            f"--memory-limit {format_bytes(limit_bytes)}: this process already holds {format_bytes(held)}",
            hint=f"--memory-limit {format_bytes(2 * held).replace(' ', '')} or more",
            exit_code=ExitCode.BAD_ANSWER,
        )
    try:
        import resource
    except ImportError:
        return
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, hard))


def lift_in_worker() -> None:
    """In a loader worker: raise the soft limit back, since a fork counts what its parent held."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    """Private memory of this process in bytes, as RLIMIT_DATA counts it: now, and the most so far."""

    data_bytes: int
    peak_data_bytes: int


def read_process_memory() -> ProcessMemory | None:
    """What counts against RLIMIT_DATA (`grep -E 'VmData|VmPeak|VmSize' /proc/self/status`); None outside Linux."""
    try:
        text = Path("/proc/self/status").read_text()
    except OSError:
        return None
    sizes = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        if name in ("VmPeak", "VmSize", "VmData"):
            sizes[name] = int(rest.split()[0]) * 1024
    if len(sizes) < 3:
        return None
    # only the total has a recorded peak; what is not data (code, stacks, shared memory) is taken as it is now
    return ProcessMemory(sizes["VmData"], sizes["VmPeak"] - (sizes["VmSize"] - sizes["VmData"]))


def room_bytes() -> int | None:
    """What this process's limit leaves above the most it held so far; None when it has no limit."""
    try:
        import resource
    except ImportError:
        return None
    memory = read_process_memory()
    soft, _ = resource.getrlimit(resource.RLIMIT_DATA)
    return None if memory is None or soft == resource.RLIM_INFINITY else soft - memory.peak_data_bytes


def default_limit_bytes() -> int | None:
    """Half of what is free on the host: the smaller of MemAvailable and the cgroup's headroom; None when unknown."""
    free = _known(memory_available_bytes(), memory_headroom_bytes())
    return min(free) // 2 if free else None


def total_bytes() -> int | None:
    """The host memory that this process could ever use: MemTotal or the cgroup's limit; None when unknown."""
    return min(_known(memory_total_bytes(), memory_limit_bytes()), default=None)


def _known(*facts: Fact[int]) -> list[int]:
    return [fact for fact in facts if not isinstance(fact, Absent)]


def allocator_environment(allocator: str, device_type: str) -> dict[str, str]:
    """The environment that `allocator` needs and this process was not started with; empty when it has it."""
    wanted: dict[str, str] = {}
    if allocator == "exact" and device_type == "cpu":
        wanted = MALLOC_ENVIRONMENT["exact"]
    if allocator == "expandable" and device_type == "cuda":
        names = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
        if not any("expandable_segments" in os.environ.get(name, "") for name in names):
            name = names[0] if os.environ.get(names[0]) else names[1]
            given = os.environ.get(name, "")
            wanted = {name: f"{given},{EXPANDABLE}" if given else EXPANDABLE}
    return {name: value for name, value in wanted.items() if os.environ.get(name) != value}
