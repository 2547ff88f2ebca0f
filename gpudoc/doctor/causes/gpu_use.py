"""Find GPU memory that no live program uses: programs that are gone hold it, or no program accounts for it."""

from __future__ import annotations

from gpudoc.doctor.causes.live import in_container, is_wsl
from gpudoc.doctor.causes.per_gpu import GpuCheck, Seen, Sign
from gpudoc.doctor.model import Finder
from gpudoc.facts.model import Absent, GpuProcess, Machine
from gpudoc.units import GIB

# the driver, its firmware and a display keep less than this without any process on every card seen so far
_UNEXPLAINED_BYTES = 2 * GIB


def _hidden(machine: Machine) -> str:
    """Why the visible processes may not be all that use a GPU; '' if they are."""
    if is_wsl(machine):
        return "WSL does not show the programs of Windows"
    if isinstance(machine.container.kind, Absent):
        return f"container.kind: {machine.container.kind.reason}"
    return "the processes of other containers cannot be seen from here" if in_container(machine) else ""


def _judge_gone(processes: tuple[GpuProcess, ...]) -> Seen | Absent | None:
    pids, held = [], 0
    for process in processes:
        if isinstance(process.alive, Absent):
            return Absent(f"processes: {process.alive.reason}")
        if process.alive:
            continue
        if isinstance(process.memory_bytes, Absent):
            return Absent(f"processes: {process.memory_bytes.reason}")
        pids.append(process.pid)
        held += process.memory_bytes
    if not held:
        return None
    text = f"{held / GIB:.1f} GiB held by {len(pids)} process(es) that no longer exist, such as {pids[0]}"
    return Seen(text=text, confidence=0.85)


def _judge_accounts(memory_used_bytes: int, memory_accounted_bytes: int) -> Seen | None:
    missing = memory_used_bytes - memory_accounted_bytes
    held = f"the processes account for {memory_accounted_bytes / GIB:.1f} GiB of them"
    who = held if memory_accounted_bytes else "no process accounts for them"
    text = f"{memory_used_bytes / GIB:.1f} GiB are used, and {who}"
    return Seen(text=text, confidence=0.8, title=text) if missing > _UNEXPLAINED_BYTES else None


CHECKS: tuple[GpuCheck, ...] = (
    GpuCheck(cause="gpu_memory_orphaned", signs=(Sign(_judge_gone), Sign(_judge_accounts)), unasked=_hidden),
)

FINDERS: tuple[Finder, ...] = tuple(check.finder() for check in CHECKS)
