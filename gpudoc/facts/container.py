"""The container, the cgroup and the scheduler around this process, for cgroup v1, v2 and both at once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from gpudoc.facts.files import exists, read_text
from gpudoc.facts.model import Absent, Container, Fact
from gpudoc.process import cgroup

ROOT = cgroup.ROOT
_NO_LIMIT = Absent("no memory limit in the cgroup")
_SCHEDULERS = {"SLURM_JOB_ID": "slurm", "LSB_JOBID": "lsf", "PBS_JOBID": "pbs", "SGE_TASK_ID": "sge"}
_GPUS_ASKED = ("SLURM_GPUS", "SLURM_GPUS_ON_NODE", "SLURM_JOB_GPUS", "SLURM_STEP_GPUS", "SLURM_GPUS_PER_NODE")


def collect(root: Path = ROOT, environment: Mapping[str, str] | None = None) -> Container:
    """Everything `Container` holds, from /proc/self/cgroup, /sys/fs/cgroup, marker files and `environment`."""
    variables = os.environ if environment is None else environment
    asked = [variables[name] for name in _GPUS_ASKED if variables.get(name)]
    memory = cgroup.tightest_memory(root=root)
    return Container(
        kind=_kind(root, variables),
        cgroup_version=_version(root),
        cpu_quota_cores=cpu_quota_cores(root),
        memory_limit_bytes=memory.limit_bytes if memory else _NO_LIMIT,
        memory_used_bytes=memory.used_bytes if memory and memory.used_bytes is not None else _NO_LIMIT,
        scheduler=next((name for key, name in _SCHEDULERS.items() if key in variables), "none"),
        gpus_asked=asked[0] if asked else Absent("no environment variable of a scheduler names GPUs"),
    )


def cpu_quota_cores(root: Path = ROOT) -> Fact[float]:
    """CPUs that the cgroup's quota allows (`cat /sys/fs/cgroup/cpu.max`), the tightest up to the root group."""
    quota = cgroup.cpu_quota(root=root)
    return quota.cores if quota else Absent("no CPU quota in the cgroup")


def memory_limit_bytes(root: Path = ROOT) -> Fact[int]:
    """Bytes that the cgroup allows (`cat /sys/fs/cgroup/memory.max`), the tightest up to the root group."""
    memory = cgroup.tightest_memory(root=root)
    return memory.limit_bytes if memory else _NO_LIMIT


def memory_headroom_bytes(root: Path = ROOT) -> Fact[int]:
    """Bytes that may still be used before a cgroup limit is reached, reclaimable file cache counted as free.

    Absent when no group on the way up has a limit.
    """
    limits = cgroup.memory_limits(root=root)
    rooms = [max(0, one.limit_bytes - one.used_bytes) for one in limits if one.used_bytes is not None]
    return min(rooms) if rooms else _NO_LIMIT


def _version(root: Path) -> Fact[int]:
    groups = cgroup.hierarchies(root=root)
    if not groups:
        return Absent("no such file: /proc/self/cgroup")
    return 1 if any("memory" in names or "cpu" in names for names, _ in groups) else 2


def _kind(root: Path, variables: Mapping[str, str]) -> Fact[str]:
    if "KUBERNETES_SERVICE_HOST" in variables or exists(root, "var/run/secrets/kubernetes.io"):
        return "kubernetes"
    if exists(root, ".dockerenv"):
        return "docker"
    if exists(root, "run/.containerenv"):
        return "podman"
    if exists(root, ".singularity.d") or "APPTAINER_CONTAINER" in variables or "SINGULARITY_CONTAINER" in variables:
        return "apptainer"
    first = read_text(root, "proc/1/cgroup")
    if isinstance(first, Absent):
        return Absent(first.reason)
    marks = {"kubepods": "kubernetes", "docker": "docker", "libpod": "podman", "containerd": "containerd", "lxc": "lxc"}
    return next((kind for mark, kind in marks.items() if mark in first), "none")
