"""The limits of a running job: CPUs after affinity and quota, memory, shared memory, from its own cgroup."""

from __future__ import annotations

import os
import time
from pathlib import Path

from gpudoc.facts.container import ROOT
from gpudoc.facts.host import memory_available_bytes
from gpudoc.facts.live.tree import TICKS, read_text
from gpudoc.facts.model import Absent, Fact
from gpudoc.facts.process import Limits
from gpudoc.process import cgroup

_NO_QUOTA = Absent("no CPU quota")
_NO_LIMIT = Absent("no memory limit")


class LimitsSampler:
    """Reads the limits of a job when it is created, and the throttling until `finish`."""

    def __init__(self, pid: int, root: Path = ROOT) -> None:
        self._pid = pid
        self._root = root
        self._began = time.monotonic()
        self._first = cgroup.cpu_quota(pid, root)
        self._busy = _busy_s(root)
        self._affinity = _affinity(pid)

    def finish(self) -> Limits:
        """The limits, and the throttling since this was made."""
        first, last = self._first, cgroup.cpu_quota(self._pid, self._root)
        # the job may have ended, and its cgroup with it: then the limits that were read first still hold
        quota = last or first
        memory = cgroup.tightest_memory(self._pid, self._root)
        busy, seconds = _busy_s(self._root), max(time.monotonic() - self._began, 1e-9)
        cores = (busy - self._busy) / seconds if busy is not None and self._busy is not None else None
        shm = _shm()
        return Limits(
            cpus_online=os.cpu_count() or 1,
            cpus_affinity=self._affinity,
            cpu_quota_cores=quota.cores if quota else _NO_QUOTA,
            throttled_s=max(0.0, last.throttled_s - first.throttled_s) if first and last else _NO_QUOTA,
            throttled_periods=max(0, last.throttled_periods - first.throttled_periods) if first and last else _NO_QUOTA,
            periods=max(0, last.periods - first.periods) if first and last else _NO_QUOTA,
            memory_available_bytes=memory_available_bytes(self._root),
            memory_limit_bytes=memory.limit_bytes if memory else _NO_LIMIT,
            memory_used_bytes=memory.used_bytes if memory and memory.used_bytes is not None else _NO_LIMIT,
            shm_total_bytes=shm[0],
            shm_free_bytes=shm[1],
            machine_busy_cores=cores if cores is not None else Absent("/proc/stat is not readable"),
        )


def _shm() -> tuple[Fact[int], Fact[int]]:
    try:
        found = os.statvfs("/dev/shm")
    except OSError as problem:
        reason = Absent(f"/dev/shm: {problem.strerror}")
        return reason, reason
    return found.f_frsize * found.f_blocks, found.f_frsize * found.f_bavail


def _busy_s(root: Path) -> float | None:
    words = read_text(f"{root}/proc/stat").partition("\n")[0].split()
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
