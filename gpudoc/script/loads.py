"""The load of a launch, measured from outside by the system: CPU time per step, memory, shared memory."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from gpudoc.tune.trial.messages import Measures

# reading every page table of a large process would slow the steps down
_MEMORY_EVERY_S = 1.0


@dataclass(slots=True)
class Loads:
    """Samples of one process and all its descendants, taken now and then while it runs."""

    pid: int
    _cpu: list[tuple[int, float]] = field(default_factory=list)
    _private_bytes: float = 0.0
    _shm_bytes: float = 0.0
    _shm_before: float | None = None
    _looked: float = 0.0

    def sample(self, steps: int) -> None:
        """Take one sample; `steps` are the optimizer steps that were reported so far."""
        family = self._family()
        if self._shm_before is None:
            self._shm_before = _shm_used(os.getpid()) or 0.0
        if steps and (not self._cpu or steps > self._cpu[-1][0]):
            self._cpu.append((steps, sum(_cpu_s(one) for one in family)))
        if steps and time.monotonic() - self._looked >= _MEMORY_EVERY_S:
            self._looked = time.monotonic()
            self._private_bytes = max(self._private_bytes, sum(_private_bytes(one.pid) for one in family))
            used = max((_shm_used(one.pid) or 0.0 for one in family), default=0.0)
            shared = any(_same_shm(one.pid) for one in family)
            self._shm_bytes = max(self._shm_bytes, used - (self._shm_before if shared else 0.0))

    def figures(self) -> Measures:
        """CPU seconds per step of all processes together, bytes of private and shared memory; only measured values."""
        found: Measures = {}
        if len(self._cpu) > 1:
            (first, before), (last, after) = self._cpu[0], self._cpu[-1]
            found["cpu_s"] = max(0.0, after - before) / (last - first)
        if self._private_bytes:
            found["private_bytes"] = self._private_bytes
            found["shm_bytes"] = self._shm_bytes
        return found

    def _family(self) -> list[psutil.Process]:
        try:
            root = psutil.Process(self.pid)
            return [root, *root.children(recursive=True)]
        except psutil.Error:
            return []


def _cpu_s(process: psutil.Process) -> float:
    with contextlib.suppress(psutil.Error):
        spent = process.cpu_times()
        # the time of ended children counts for their parent
        return float(spent.user + spent.system + spent.children_user + spent.children_system)
    return 0.0


def _private_bytes(pid: int) -> float:
    """A process's share of anonymous memory (`grep Pss_Anon /proc/PID/smaps_rollup`); 0 if it cannot be read.

    Pages that are shared after a fork count once over all processes. Kernels before 5.4 only report private pages.
    """
    try:
        rows = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii", "replace").splitlines()
    except OSError:
        return 0.0
    of_all = [row for row in rows if row.startswith("Pss_Anon:")]
    return sum(1024.0 * int(row.split()[1]) for row in of_all or rows if row.startswith(("Pss_Anon:", "Private_")))


def _shm_used(pid: int) -> float | None:
    """Bytes used in the /dev/shm that a process sees; None if they cannot be read."""
    try:
        space = os.statvfs(f"/proc/{pid}/root/dev/shm")
    except OSError:
        return None
    return float((space.f_blocks - space.f_bfree) * space.f_frsize)


def _same_shm(pid: int) -> bool:
    """Whether a process sees our own /dev/shm, so that its use before the launch must be subtracted."""
    try:
        return os.stat(f"/proc/{pid}/root/dev/shm").st_dev == os.stat("/dev/shm").st_dev  # noqa: PTH116
    except OSError:
        return True
