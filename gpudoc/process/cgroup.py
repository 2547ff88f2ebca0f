"""The control groups of a process, version 1, 2 or both at once: CPU quota, memory limit, kills for lack of memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TypeVar

T = TypeVar("T")
ROOT = Path("/")
SELF = "self"
# a limit above this is "no limit": version 1 writes the largest page-aligned number, which differs between kernels
_UNLIMITED_BYTES = 1 << 60


@dataclass(frozen=True, slots=True)
class CpuQuota:
    """CPUs that a group may use, and how often and long it was throttled so far (`cat cpu.max cpu.stat`)."""

    cores: float
    throttled_s: float
    throttled_periods: int
    periods: int


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """Bytes that a group may hold, and bytes that it holds without reclaimable file cache; None if not readable."""

    limit_bytes: int
    used_bytes: int | None


def hierarchies(pid: int | str = SELF, root: Path = ROOT) -> list[tuple[tuple[str, ...], str]]:
    """(controllers, path) of each hierarchy of a process (`cat /proc/PID/cgroup`); version 2 names no controllers."""
    lines = [line.split(":", 2) for line in _text(root / f"proc/{pid}/cgroup").splitlines() if line.count(":") >= 2]
    return [(tuple(name for name in names.split(",") if name), path) for _, names, path in lines]


def cpu_quota(pid: int | str = SELF, root: Path = ROOT) -> CpuQuota | None:
    """The tightest CPU quota on the way from the process's group to the root; None without any."""
    return min(_of_each(_cpu_quota, "cpu", pid, root), key=lambda quota: quota.cores, default=None)


def memory_limits(pid: int | str = SELF, root: Path = ROOT) -> list[MemoryLimit]:
    """The limit of every group that has one, from the process's own to the root's."""
    return _of_each(_memory_limit, "memory", pid, root)


def tightest_memory(pid: int | str = SELF, root: Path = ROOT) -> MemoryLimit | None:
    """The lowest of the process's memory limits; None without any."""
    return min(memory_limits(pid, root), key=lambda memory: memory.limit_bytes, default=None)


def oom_kills(pid: int | str = SELF, root: Path = ROOT) -> int:
    """How often the kernel killed for lack of memory in the process's groups; only its change has a meaning."""
    return sum(_of_each(_kills, "memory", pid, root))


def _of_each(read: Callable[[Path], T | None], controller: str, pid: int | str, root: Path) -> list[T]:
    """All results of `read` for the folders of the process's group and of its ancestors, the innermost first.

    In a container the path may be the host's: then only the mount's own root exists here.
    """
    found = []
    for names, path in hierarchies(pid, root):
        if names and controller not in names:
            continue
        here = PurePosixPath(path.lstrip("/"))
        for base in _mounts(root / "sys/fs/cgroup", names, controller):
            folders = dict.fromkeys(base / step for step in (here, *here.parents))
            found += [one for folder in folders if (one := read(folder)) is not None]
    return found


def _mounts(base: Path, names: tuple[str, ...], controller: str) -> list[Path]:
    if not names:
        return [place for place in (base, base / "unified") if place.is_dir()]
    return [place for place in (base / ",".join(names), base / controller) if place.is_dir()][:1]


def _cpu_quota(folder: Path) -> CpuQuota | None:
    words = _text(folder / "cpu.max").split() or [_text(folder / f"cpu.cfs_{name}_us") for name in ("quota", "period")]
    if len(words) != 2 or not all(word.isdecimal() and int(word) for word in words):
        return None
    stat = _numbers(folder / "cpu.stat")
    # version 2 counts microseconds, version 1 nanoseconds
    throttled_s = stat.get("throttled_usec", 0) / 1e6 + stat.get("throttled_time", 0) / 1e9
    return CpuQuota(int(words[0]) / int(words[1]), throttled_s, stat.get("nr_throttled", 0), stat.get("nr_periods", 0))


def _memory_limit(folder: Path) -> MemoryLimit | None:
    limit = _text(folder / "memory.max") or _text(folder / "memory.limit_in_bytes")
    if not limit.isdecimal() or not 0 < int(limit) < _UNLIMITED_BYTES:
        return None
    used = _text(folder / "memory.current") or _text(folder / "memory.usage_in_bytes")
    stat = _numbers(folder / "memory.stat")
    # version 1 counts descendants only in the total
    cache = stat.get("total_inactive_file", stat.get("inactive_file", 0))
    return MemoryLimit(int(limit), max(0, int(used) - cache) if used.isdecimal() else None)


def _kills(folder: Path) -> int:
    return sum(_numbers(folder / name).get("oom_kill", 0) for name in ("memory.events", "memory.oom_control"))


def _numbers(place: Path) -> dict[str, int]:
    rows = (line.split() for line in _text(place).splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdecimal()}


def _text(place: Path) -> str:
    """The stripped text of a file; "" when it cannot be read."""
    try:
        return place.read_text("utf-8", "replace").strip()
    except OSError:
        return ""
