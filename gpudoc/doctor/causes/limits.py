"""Limits around the process: shared memory, open files, processes, CPUs and memory of the cgroup, disk."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoc.doctor.causes.live import events, in_container, observe, value, variables
from gpudoc.doctor.model import Evidence, Finder, Finding, Skip
from gpudoc.facts.model import Absent
from gpudoc.units import GIB, MIB, format_bytes

# Docker gives 64 MiB unless told otherwise; loader workers hand over whole batches through it
_SMALL_SHM_BYTES = 128 * MIB
_FEW_OPEN_FILES = 512
_FEW_PROCESSES = 256
_LITTLE_DISK_BYTES = GIB
_LITTLE_MEMORY_BYTES = GIB


def find_small_shm(evidence: Evidence) -> Iterator[Finding | Skip]:
    """A /dev/shm too small for loader workers."""
    total = evidence.machine.host.shm_total_bytes
    if not isinstance(total, Absent) and total < _SMALL_SHM_BYTES:
        seen = (observe("/dev/shm", format_bytes(total), "statvfs"),)
        yield Finding(id="shm_too_small", severity="warning", confidence=0.9, evidence=seen)


def find_few_files(evidence: Evidence) -> Iterator[Finding | Skip]:
    """A limit of open files that a few loader workers use up."""
    limit = evidence.machine.host.open_files_limit
    if not isinstance(limit, Absent) and limit < _FEW_OPEN_FILES:
        seen = (observe("ulimit -n", limit, "getrlimit"),)
        yield Finding(id="too_many_open_files", severity="warning", confidence=0.8, evidence=seen)


def find_few_processes(evidence: Evidence) -> Iterator[Finding | Skip]:
    """A limit of processes and threads that torch's own threads use up."""
    limit = evidence.machine.host.processes_limit
    if not isinstance(limit, Absent) and limit < _FEW_PROCESSES:
        seen = (observe("ulimit -u", limit, "getrlimit"),)
        yield Finding(id="process_limit_low", severity="warning", confidence=0.8, evidence=seen)


def find_cpu_quota(evidence: Evidence) -> Iterator[Finding | Skip]:
    """A CPU quota that torch does not see: it starts a thread per CPU, and the kernel stops them all in turn."""
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
            observe("CPU quota", f"{quota:g} of {value(machine.host.cpu_count, 0)} CPUs", "cgroup"),
            observe("torch.get_num_threads()", threads, "torch"),
        )
        yield Finding(id="cgroup_cpu_limit", severity="warning", confidence=0.85, evidence=seen)


def find_little_memory(evidence: Evidence) -> Iterator[Finding | Skip]:
    """Host memory that is nearly used up, of the machine or of the cgroup."""
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


def find_full_disk(evidence: Evidence) -> Iterator[Finding | Skip]:
    """No room for checkpoints here or for temporary files."""
    host = evidence.machine.host
    places = (("this folder", host.disk_free_bytes), ("temporary files", host.tmp_free_bytes))
    seen = tuple(
        observe(f"free for {name}", format_bytes(free), "statvfs")
        for name, free in places
        if not isinstance(free, Absent) and free < _LITTLE_DISK_BYTES
    )
    if seen:
        yield Finding(id="disk_full", severity="warning", confidence=0.9, evidence=seen)


def find_killed(evidence: Evidence) -> Iterator[Finding | Skip]:
    """Processes that the kernel killed for lack of memory since boot; of an earlier job, and so only information."""
    killed = [event for event in events(evidence.machine, "oom_kill") if "illed process" in event.text]
    if killed:
        seen = tuple(observe("kernel log", event.text, "kernel log") for event in killed[-2:])
        yield Finding(id="host_oom_killed", severity="info", confidence=0.8, evidence=seen)


def find_hung_files(evidence: Evidence) -> Iterator[Finding | Skip]:
    """Files of the kernel or of a mounted disk that did not answer."""
    failures = evidence.machine.probe_failures
    hung = {name: failures[name] for name in ("files", "slow_files") if failures.get(name, "").startswith("no answer")}
    if hung:
        place = "in the container" if in_container(evidence.machine) else "on this machine"
        seen = tuple(observe(f"reading files {place}", failure, "probe") for failure in hung.values())
        yield Finding(id="system_files_not_answering", severity="warning", confidence=0.85, evidence=seen)


FINDERS: tuple[Finder, ...] = (
    Finder(id="shm_too_small", find=find_small_shm, needs=("host.shm_total_bytes",)),
    Finder(id="too_many_open_files", find=find_few_files, needs=("host.open_files_limit",)),
    Finder(id="process_limit_low", find=find_few_processes, needs=("host.processes_limit",)),
    Finder(id="cgroup_cpu_limit", find=find_cpu_quota),
    Finder(id="host_memory_low", find=find_little_memory, needs=("host.memory_available_bytes",)),
    Finder(id="disk_full", find=find_full_disk, needs=("host.disk_free_bytes",)),
    Finder(id="host_oom_killed", find=find_killed, needs=("kernel_log",)),
    Finder(id="system_files_not_answering", find=find_hung_files),
)
