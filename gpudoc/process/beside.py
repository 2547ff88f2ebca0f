"""What others did with the CPUs while something of ours ran."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

import psutil

# the kernel counts in ticks of 10 ms, so that a shorter span says nothing
_LEAST_S = 0.05
_RUNNING = ("user", "system")
_REAPED = ("children_user", "children_system")


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """CPUs that others kept busy on average, in whole CPUs.

    `share` is what they, this process and all below it took of the CPUs that this process may use; `stolen_share` what
    a hypervisor took of all CPU time, None where the kernel does not count it.
    """

    other_cpus: float
    share: float
    stolen_share: float | None


def cpus_allowed() -> int:
    """CPUs that this process may run on (`nproc`); all of them where the system does not tell."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Meter:
    """Counts from when it is made, by `head -1 /proc/stat` and the times of this process and its descendants."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._started, self._own_s, self._all = time.perf_counter(), self._own(), psutil.cpu_times()

    def read(self) -> Beside | None:
        """What was used since; None when that was below 50 ms ago, or where the kernel does not count."""
        span = time.perf_counter() - self._started
        after, own_s = psutil.cpu_times(), self._own() - self._own_s
        delta = {name: getattr(after, name) - getattr(self._all, name) for name in after._fields}
        # guest time is already inside user time
        total = sum(value for name, value in delta.items() if not name.startswith("guest"))
        if span < _LEAST_S or total <= 0:
            return None
        busy_s = total - delta["idle"] - delta.get("iowait", 0.0) - delta.get("steal", 0.0)
        own, others = max(0.0, own_s / span), max(0.0, (busy_s - own_s) / span)
        return Beside(
            other_cpus=others,
            share=(own + others) / cpus_allowed(),
            stolen_share=max(0.0, delta["steal"] / total) if "steal" in delta else None,
        )

    def _own(self) -> float:
        """CPU seconds of this process and all below it; what has ended counts with whom it was waited for by."""
        found = self._process.cpu_times()
        total = sum(getattr(found, name) for name in _RUNNING + _REAPED)
        for child in self._process.children(recursive=True):
            try:
                times = child.cpu_times()
                # the own times of a child that ended and was not waited for are in no other's yet
                total += sum(getattr(times, name) for name in _RUNNING + _REAPED)
            except psutil.Error:
                continue
        return float(total)
