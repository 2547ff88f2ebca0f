"""What a running job may use: CPUs after affinity and quota, memory, shared memory, as its own cgroup says."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from gpudoc.facts.live.tree import TICKS, read_text
from gpudoc.facts.model import Absent, Fact
from gpudoc.facts.process import Limits


@dataclass(frozen=True, slots=True)
class Throttle:
    """Quota and throttling counters of a CPU cgroup at one moment (`cat cpu.stat`)."""

    quota_cores: Fact[float]
    throttled_s: Fact[float]
    throttled_periods: Fact[int]
    periods: Fact[int]


class LimitsSampler:
    """Reads the limits of a job when made, and what was throttled until `finish`."""

    def __init__(self, pid: int, root: str = "/proc", cgroups: str = "/sys/fs/cgroup") -> None:
        self.pid = pid
        self.root = root
        self.cgroups = cgroups
        self._began = time.monotonic()
        self._first = read_throttle(pid, root, cgroups)
        self._busy = _busy_s(root)
        self._affinity = _affinity(pid)

    def finish(self) -> Limits:
        """The limits, and the throttling since this was made."""
        last = read_throttle(self.pid, self.root, self.cgroups)
        # the job may have ended, and its cgroup with it: then the limits that were read first still hold
        quota = last.quota_cores if isinstance(last.quota_cores, float) else self._first.quota_cores
        memory = _memory(self.pid, self.root, self.cgroups)
        busy, seconds = _busy_s(self.root), max(time.monotonic() - self._began, 1e-9)
        cores = (busy - self._busy) / seconds if busy is not None and self._busy is not None else None
        shm = _shm()
        return Limits(
            cpus_online=os.cpu_count() or 1,
            cpus_affinity=self._affinity,
            cpu_quota_cores=quota,
            throttled_s=_added(self._first.throttled_s, last.throttled_s),
            throttled_periods=_added_count(self._first.throttled_periods, last.throttled_periods),
            periods=_added_count(self._first.periods, last.periods),
            memory_available_bytes=_available(self.root),
            memory_limit_bytes=memory[0],
            memory_used_bytes=memory[1],
            shm_total_bytes=shm[0],
            shm_free_bytes=shm[1],
            machine_busy_cores=cores if cores is not None else Absent("/proc/stat is not readable"),
        )


def read_throttle(pid: int, root: str = "/proc", cgroups: str = "/sys/fs/cgroup") -> Throttle:
    """The tightest CPU quota on the way from the job's cgroup to the root, v2 or v1, with its throttling counters."""
    best: Throttle | None = None
    for folder, version in _cgroup_folders(pid, "cpu", root, cgroups):
        found = _throttle_v2(folder) if version == 2 else _throttle_v1(folder)
        if isinstance(found.quota_cores, float) and (best is None or found.quota_cores < _cores(best)):
            best = found
    none = Absent("no CPU quota")
    return best or Throttle(none, none, none, none)


def _cores(throttle: Throttle) -> float:
    return throttle.quota_cores if isinstance(throttle.quota_cores, float) else float("inf")


def _cgroup_folders(pid: int, controller: str, root: str, cgroups: str) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    for line in read_text(f"{root}/{pid}/cgroup").splitlines():
        number, names, path = [*line.split(":", 2), "", ""][:3]
        if number == "0" and not names:
            base, version = cgroups, 2
        elif controller in names.split(","):
            base, version = f"{cgroups}/{controller}", 1
        else:
            continue
        parts = [part for part in path.split("/") if part]
        # inside a container the path names the host's folder, which is mounted as the root of the hierarchy
        found += [("/".join([base, *parts[:count]]), version) for count in range(len(parts), -1, -1)]
    return found


def _throttle_v2(folder: str) -> Throttle:
    words = read_text(f"{folder}/cpu.max").split()
    none = Absent("no CPU quota")
    if len(words) != 2 or not words[0].isdigit():
        return Throttle(none, none, none, none)
    numbers = _numbers(read_text(f"{folder}/cpu.stat"))
    return Throttle(
        int(words[0]) / int(words[1]),
        numbers.get("throttled_usec", 0) / 1e6,
        numbers.get("nr_throttled", 0),
        numbers.get("nr_periods", 0),
    )


def _throttle_v1(folder: str) -> Throttle:
    quota, period = read_text(f"{folder}/cpu.cfs_quota_us").strip(), read_text(f"{folder}/cpu.cfs_period_us").strip()
    none = Absent("no CPU quota")
    if not quota.isdigit() or not period.isdigit():
        return Throttle(none, none, none, none)
    numbers = _numbers(read_text(f"{folder}/cpu.stat"))
    throttled_s = numbers.get("throttled_time", 0) / 1e9
    return Throttle(int(quota) / int(period), throttled_s, numbers.get("nr_throttled", 0), numbers.get("nr_periods", 0))


def _numbers(text: str) -> dict[str, int]:
    rows = (line.split() for line in text.splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()}


def _memory(pid: int, root: str, cgroups: str) -> tuple[Fact[int], Fact[int]]:
    best: tuple[int, int] | None = None
    for folder, version in _cgroup_folders(pid, "memory", root, cgroups):
        names = ("memory.max", "memory.current") if version == 2 else _MEMORY_V1
        limit, used = (read_text(f"{folder}/{name}").strip() for name in names)
        # cgroup v1 writes a number near 2^63 for "no limit"
        if limit.isdigit() and used.isdigit() and int(limit) < 2**60 and (best is None or int(limit) < best[0]):
            best = (int(limit), int(used))
    none = Absent("no memory limit")
    return best if best is not None else (none, none)


_MEMORY_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes")


def _available(root: str) -> Fact[int]:
    for line in read_text(f"{root}/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return Absent("/proc/meminfo is not readable")


def _shm() -> tuple[Fact[int], Fact[int]]:
    try:
        found = os.statvfs("/dev/shm")
    except OSError as problem:
        reason = Absent(f"/dev/shm: {problem.strerror}")
        return reason, reason
    return found.f_frsize * found.f_blocks, found.f_frsize * found.f_bavail


def _busy_s(root: str) -> float | None:
    words = read_text(f"{root}/stat").partition("\n")[0].split()
    if len(words) < 5 or words[0] != "cpu":
        return None
    numbers = [int(word) for word in words[1:9]]
    idle = numbers[3] + (numbers[4] if len(numbers) > 4 else 0)
    return (sum(numbers) - idle) / TICKS


def _affinity(pid: int) -> int:
    try:
        return len(os.sched_getaffinity(pid))
    except OSError:
        return os.cpu_count() or 1


def _added(first: Fact[float], last: Fact[float]) -> Fact[float]:
    if isinstance(first, Absent):
        return first
    return last if isinstance(last, Absent) else max(0.0, last - first)


def _added_count(first: Fact[int], last: Fact[int]) -> Fact[int]:
    if isinstance(first, Absent):
        return first
    return last if isinstance(last, Absent) else max(0, last - first)
