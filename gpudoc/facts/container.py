"""The container, the cgroup and the scheduler around this process, for cgroup v1, v2 and both at once."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from gpudoc.facts.files import exists, read_int, read_text
from gpudoc.facts.model import Absent, Container, Fact

ROOT = Path("/")
# a limit above this is "no limit": cgroup v1 writes the largest page-aligned number, and versions differ in it
_UNLIMITED_BYTES = 1 << 60
_SCHEDULERS = {"SLURM_JOB_ID": "slurm", "LSB_JOBID": "lsf", "PBS_JOBID": "pbs", "SGE_TASK_ID": "sge"}
_GPUS_ASKED = ("SLURM_GPUS", "SLURM_GPUS_ON_NODE", "SLURM_JOB_GPUS", "SLURM_STEP_GPUS", "SLURM_GPUS_PER_NODE")


def collect(root: Path = ROOT, environment: Mapping[str, str] | None = None) -> Container:
    """Everything `Container` holds, from /proc/self/cgroup, /sys/fs/cgroup, marker files and `environment`."""
    variables = os.environ if environment is None else environment
    groups = _groups(root)
    asked = [variables[name] for name in _GPUS_ASKED if variables.get(name)]
    limit = memory_limit_bytes(root)
    return Container(
        kind=_kind(root, variables),
        cgroup_version=_version(groups),
        cpu_quota_cores=cpu_quota_cores(root),
        memory_limit_bytes=limit,
        memory_used_bytes=_used_of_tightest(root),
        scheduler=next((name for key, name in _SCHEDULERS.items() if key in variables), "none"),
        gpus_asked=asked[0] if asked else Absent("no scheduler variable names GPUs"),
    )


def cpu_quota_cores(root: Path = ROOT) -> Fact[float]:
    """CPUs that the cgroup's quota allows (`cat /sys/fs/cgroup/cpu.max`), the tightest up to the root group."""
    quotas = [quota for folder in _folders(root, "cpu") if (quota := _quota_in(root, folder)) is not None]
    return min(quotas) if quotas else Absent("no CPU quota in the cgroup")


def memory_limit_bytes(root: Path = ROOT) -> Fact[int]:
    """Bytes that the cgroup allows (`cat /sys/fs/cgroup/memory.max`), the tightest up to the root group."""
    limits = [limit for limit, _ in _memory(root)]
    return min(limits) if limits else Absent("no memory limit in the cgroup")


def memory_headroom_bytes(root: Path = ROOT) -> Fact[int]:
    """Bytes that may still be used before a cgroup limit is reached, reclaimable file cache counted as free.

    Absent when no group on the way up has a limit.
    """
    rooms = [max(0, limit - used) for limit, used in _memory(root) if used is not None]
    return min(rooms) if rooms else Absent("no memory limit in the cgroup")


def _used_of_tightest(root: Path) -> Fact[int]:
    known = [(limit, used) for limit, used in _memory(root) if used is not None]
    return min(known)[1] if known else Absent("no memory limit in the cgroup")


def _groups(root: Path) -> list[tuple[tuple[str, ...], str]]:
    """(controllers, path) of each hierarchy that this process is in; no controllers means version 2."""
    text = read_text(root, "proc/self/cgroup")
    if isinstance(text, Absent):
        return []
    lines = [line.split(":", 2) for line in text.splitlines() if line.count(":") >= 2]
    return [(tuple(name for name in names.split(",") if name), path) for _, names, path in lines]


def _version(groups: list[tuple[tuple[str, ...], str]]) -> Fact[int]:
    if not groups:
        return Absent("no such file: /proc/self/cgroup")
    return 1 if any("memory" in names or "cpu" in names for names, _ in groups) else 2


def _folders(root: Path, controller: str) -> Iterator[str]:
    """The folders of this process's group and of its ancestors, inside first, for one controller.

    In a container the path in /proc/self/cgroup may be the host's: then only the mount's own root exists here.
    """
    for names, path in _groups(root):
        if names and controller not in names:
            continue
        for base in _mounts(root, names, controller):
            here = PurePosixPath(path.lstrip("/"))
            steps = [here, *here.parents] if str(here) != "." else [here]
            yield from dict.fromkeys(
                str(PurePosixPath(base) / step) for step in steps if exists(root, f"{base}/{step}")
            )


def _mounts(root: Path, names: tuple[str, ...], controller: str) -> list[str]:
    base = "sys/fs/cgroup"
    if not names:
        return [base, f"{base}/unified"] if exists(root, f"{base}/unified") else [base]
    return [place for place in (f"{base}/{','.join(names)}", f"{base}/{controller}") if exists(root, place)][:1]


def _quota_in(root: Path, folder: str) -> float | None:
    text = read_text(root, f"{folder}/cpu.max")
    if not isinstance(text, Absent):
        quota, _, period = text.partition(" ")
        return int(quota) / int(period or 100000) if quota.isdigit() and (period or "1").isdigit() else None
    quota_us, period_us = read_int(root, f"{folder}/cpu.cfs_quota_us"), read_int(root, f"{folder}/cpu.cfs_period_us")
    if isinstance(quota_us, Absent) or isinstance(period_us, Absent) or quota_us <= 0 or period_us <= 0:
        return None
    return quota_us / period_us


def _memory(root: Path) -> list[tuple[int, int | None]]:
    """(limit, used without reclaimable cache) of every group with a limit, from this one up."""
    found = []
    for folder in _folders(root, "memory"):
        limit = read_int(root, f"{folder}/memory.max")
        version = 2
        if isinstance(limit, Absent):
            limit, version = read_int(root, f"{folder}/memory.limit_in_bytes"), 1
        if not isinstance(limit, Absent) and 0 < limit < _UNLIMITED_BYTES:
            found.append((limit, _used_in(root, folder, version)))
    return found


def _used_in(root: Path, folder: str, version: int) -> int | None:
    used = read_int(root, f"{folder}/{'memory.current' if version == 2 else 'memory.usage_in_bytes'}")
    stat = read_text(root, f"{folder}/memory.stat")
    if isinstance(used, Absent):
        return None
    wanted = "inactive_file" if version == 2 else "total_inactive_file"
    rows = dict(line.split()[:2] for line in ("" if isinstance(stat, Absent) else stat).splitlines() if " " in line)
    cache = rows.get(wanted, "0")
    return max(0, used - (int(cache) if cache.isdigit() else 0))


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
