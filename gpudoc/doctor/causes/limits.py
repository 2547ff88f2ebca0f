"""Limits around the process: shared memory, open files, processes, CPUs and memory of the cgroup, disk."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from operator import attrgetter
from typing import NamedTuple

from gpudoc.doctor.causes.live import events, in_container, observe, variables
from gpudoc.doctor.model import Evidence, Finder, Finding, Skip
from gpudoc.facts.model import Absent, known_or
from gpudoc.units import GIB, MIB, format_bytes

_LITTLE_MEMORY_BYTES = GIB


class Least(NamedTuple):
    """A fact of the machine that should not be below a bound, and how a finding quotes it."""

    cause: str
    path: str
    least: int
    name: str
    origin: str
    confidence: float


LEAST = (
    # Docker's default is 64 MiB; loader workers pass whole batches through it
    Least("shm_too_small", "host.shm_total_bytes", 128 * MIB, "/dev/shm", "statvfs", 0.9),
    Least("too_many_open_files", "host.open_files_limit", 512, "ulimit -n", "getrlimit", 0.8),
    Least("process_limit_low", "host.processes_limit", 256, "ulimit -u", "getrlimit", 0.8),
    Least("disk_full", "host.disk_free_bytes", GIB, "free for this folder", "statvfs", 0.9),
    Least("disk_full", "host.tmp_free_bytes", GIB, "free for temporary files", "statvfs", 0.9),
)


def find_low(evidence: Evidence, cause: str) -> Iterator[Finding | Skip]:
    """Facts below their bounds: shared memory, a limit of the process, room on a disk."""
    facts = [(limit, attrgetter(limit.path)(evidence.machine)) for limit in LEAST if limit.cause == cause]
    low = [(limit, fact) for limit, fact in facts if not isinstance(fact, Absent) and fact < limit.least]
    if low:
        seen = [(limit, format_bytes(fact) if limit.path.endswith("_bytes") else fact) for limit, fact in low]
        evident = tuple(observe(limit.name, fact, limit.origin) for limit, fact in seen)
        yield Finding(id=cause, severity="warning", confidence=low[0][0].confidence, evidence=evident)


def find_cpu_quota(evidence: Evidence) -> Iterator[Finding | Skip]:
    """A CPU quota that torch does not see: torch starts a thread per CPU, and the kernel stops them all in turn."""
    machine = evidence.machine
    quota, threads = machine.container.cpu_quota_cores, machine.torch.num_threads
    if isinstance(quota, Absent):
        if not quota.reason.startswith("no CPU quota"):
            yield Skip(f"container.cpu_quota_cores: {quota.reason}")
        return
    if isinstance(threads, Absent):
        yield Skip(f"torch.num_threads: {threads.reason}")
        return
    if threads > quota + 1 and "OMP_NUM_THREADS" not in variables(machine):
        seen = (
            observe("CPU quota", f"{quota:g} of {known_or(machine.host.cpu_count, 0)} CPUs", "cgroup"),
            observe("torch.get_num_threads()", threads, "torch"),
        )
        yield Finding(id="cgroup_cpu_limit", severity="warning", confidence=0.85, evidence=seen)


def find_little_memory(evidence: Evidence) -> Iterator[Finding | Skip]:
    """Nearly exhausted host memory, of the machine or of the cgroup."""
    machine = evidence.machine
    available, limit = machine.host.memory_available_bytes, machine.container.memory_limit_bytes
    used = machine.container.memory_used_bytes
    seen = []
    if not isinstance(available, Absent) and available < _LITTLE_MEMORY_BYTES:
        seen.append(observe("memory available", format_bytes(available), "/proc/meminfo"))
    if not isinstance(limit, Absent) and not isinstance(used, Absent) and limit - used < _LITTLE_MEMORY_BYTES:
        seen.append(observe("cgroup memory", f"{format_bytes(used)} of {format_bytes(limit)} used", "cgroup"))
    if seen:
        yield Finding(id="host_memory_low", severity="warning", confidence=0.85, evidence=tuple(seen))


def find_killed(evidence: Evidence) -> Iterator[Finding | Skip]:
    """Processes that the kernel killed for lack of memory since boot; only a note, as they belong to earlier jobs."""
    killed = [event for event in events(evidence.machine, "oom_kill") if "illed process" in event.text]
    if killed:
        seen = tuple(observe("kernel log", event.text, "kernel log") for event in killed[-2:])
        count = "a process was" if len(killed) == 1 else f"{len(killed)} processes were"
        title = f"Host memory ran out earlier: {count} killed"
        yield Finding(id="host_oom_killed", severity="info", confidence=0.8, evidence=seen, title=title)


def find_hung_files(evidence: Evidence) -> Iterator[Finding | Skip]:
    """Files of the kernel or of a mounted disk that did not answer."""
    failures = evidence.machine.probe_failures
    hung = {name: failures[name] for name in ("files", "slow_files") if failures.get(name, "").startswith("no answer")}
    if hung:
        place = "in the container" if in_container(evidence.machine) else "on this machine"
        seen = tuple(observe(f"reading files {place}", failure, "probe") for failure in hung.values())
        yield Finding(id="system_files_not_answering", severity="warning", confidence=0.85, evidence=seen)


FINDERS: tuple[Finder, ...] = (
    *(
        Finder(id=cause, find=partial(find_low, cause=cause), needs=(path,))
        for cause, path in {limit.cause: limit.path for limit in reversed(LEAST)}.items()
    ),
    Finder(id="cgroup_cpu_limit", find=find_cpu_quota),
    Finder(id="host_memory_low", find=find_little_memory, needs=("host.memory_available_bytes",)),
    Finder(id="host_oom_killed", find=find_killed, needs=("kernel_log",)),
    Finder(id="system_files_not_answering", find=find_hung_files),
)
