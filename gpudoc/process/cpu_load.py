"""How much of the CPUs other processes used while our own work ran."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

import psutil

from gpudoc.process.cgroup import CpuQuota, cpu_quota

# the kernel counts in ticks of 10 ms, so a shorter span says nothing
_LEAST_S = 0.05
_RUNNING = ("user", "system")
_REAPED = ("children_user", "children_system")


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuLoad:
    """CPUs that other processes kept busy on average: their number, and their share of those that this process may use.

    `share` is the part of these that they, this process and all below it used. `stolen_share` is the part of the time
    wanted on them that a hypervisor took; None if the kernel does not count it.
    `throttled_share` is the share of its cgroup's CPU quota periods that used up the quota; None without a quota.
    """

    other_cpus: float
    other_share: float
    share: float
    stolen_share: float | None
    throttled_share: float | None = None


def cpus_allowed() -> int:
    """CPUs that this process may run on (`nproc`); all of them if the system does not say."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _cpu_times() -> dict[str, float]:
    """Seconds of each kind on the CPUs that this process may run on (`grep ^cpu /proc/stat`)."""
    rows = psutil.cpu_times(percpu=True)
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(len(rows)))
    # CPUs that are offline have no row: then a row's place is not its number
    mine = [row for number, row in enumerate(rows) if number in allowed or max(allowed) >= len(rows)]
    return {name: sum(getattr(row, name) for row in mine) for name in rows[0]._fields}


class LoadMeter:
    """Measures the load since its creation, by /proc/stat, cpu.stat and the times of this process and all below it."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._quota = cpu_quota()
        self._started, self._own_s, self._all = time.perf_counter(), self._own(), _cpu_times()

    def read(self) -> CpuLoad | None:
        """The load since the start; None if that is less than 50 ms ago, or if the kernel does not count."""
        span = time.perf_counter() - self._started
        after, own_s = _cpu_times(), self._own() - self._own_s
        delta = {name: seconds - self._all[name] for name, seconds in after.items()}
        # guest time is already inside user time
        total = sum(value for name, value in delta.items() if not name.startswith("guest"))
        if span < _LEAST_S or total <= 0:
            return None
        stolen_s = max(0.0, delta.get("steal", 0.0))
        busy_s = total - delta["idle"] - delta.get("iowait", 0.0) - stolen_s
        own, others = max(0.0, own_s / span), max(0.0, (busy_s - own_s) / span)
        return CpuLoad(
            other_cpus=others,
            other_share=others / cpus_allowed(),
            share=(own + others) / cpus_allowed(),
            stolen_share=stolen_s / max(stolen_s + busy_s, _LEAST_S) if "steal" in delta else None,
            throttled_share=_throttled(self._quota, cpu_quota()),
        )

    def _own(self) -> float:
        """CPU seconds of this process and all below it; an ended process counts with the one that waited for it."""
        found = self._process.cpu_times()
        total = sum(getattr(found, name) for name in _RUNNING + _REAPED)
        for child in self._process.children(recursive=True):
            try:
                times = child.cpu_times()
                # if a child ended and nobody waited for it, no other process counts its own times yet
                total += sum(getattr(times, name) for name in _RUNNING + _REAPED)
            except psutil.Error:
                continue
        return float(total)


def _throttled(before: CpuQuota | None, after: CpuQuota | None) -> float | None:
    if before is None or after is None:
        return None
    return max(0, after.throttled_periods - before.throttled_periods) / max(1, after.periods - before.periods)
