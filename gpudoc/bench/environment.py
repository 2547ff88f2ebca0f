"""The machine's facts for the run and for the record, without names of people and hosts."""

from __future__ import annotations

import math
import os
import platform
from pathlib import Path

import psutil

from gpudoc.bench.model import BENCH_VERSION, Parameter
from gpudoc.bench.sampling import SamplingPlan
from gpudoc.facts.identify import gpu_at
from gpudoc.facts.model import Absent, Gpu, Machine, known_or
from gpudoc.facts.numa import cpus_of_node
from gpudoc.process.cpu_load import cpus_allowed
from gpudoc.process.openmp import own_openmp
from gpudoc.units import GIB

QUICK_S, FULL_S = 11.0, 80.0
# a quick run takes few samples in each of more processes, so that they are as far apart in time as possible
CPU_ROUNDS, QUICK_CPU_ROUNDS = 3, 5


def make_plan(device: str, machine: Machine, *, quick: bool, only: tuple[str, ...], data: Path | None) -> SamplingPlan:
    """Threads, sizes and seconds for the measuring process."""
    host = machine.host
    usable = known_or(host.cpus_usable, float(cpus_allowed()))
    physical = known_or(host.cpu_cores_physical, psutil.cpu_count(logical=False) or 1)
    near = near_cpus(device, machine)
    if near:
        # a process bound to a node has only that node's cores, in the CPU's cases too
        usable = min(usable, float(len(near)))
        physical = physical * len(near) // known_or(host.cpu_count, os.cpu_count() or len(near))
    return SamplingPlan(
        device=device,
        only=only,
        quick=quick,
        rounds=(QUICK_CPU_ROUNDS if quick else CPU_ROUNDS) if device == "cpu" else 1,
        budget_s=QUICK_S if quick else FULL_S,
        data=str(data.resolve()) if data else "",
        threads=max(1, min(physical, math.floor(usable))),
        cpu_flags=known_or(host.cpu_flags, ()),
        last_level_cache_bytes=known_or(host.last_level_cache_bytes, 0),
        memory_bytes=known_or(host.memory_available_bytes, psutil.virtual_memory().available),
        num_gpus=len(known_or(machine.gpus, ())),
        is_exclusive=any(known_or(gpu.compute_mode, "").startswith("exclusive") for gpu in known_or(machine.gpus, ())),
        bind_cpus=near,
    )


def near_cpus(device: str, machine: Machine) -> tuple[int, ...]:
    """The CPUs of the GPU's NUMA node that this process may use; empty if there is one node, or it is unknown."""
    gpu = gpu_of(device, machine)
    node = -1 if gpu is None else known_or(gpu.numa_node, -1)
    if node < 0 or known_or(machine.host.numa_nodes, 1) < 2:
        return ()
    near = cpus_of_node(node)
    return () if isinstance(near, Absent) else tuple(sorted(set(near) & os.sched_getaffinity(0)))


def describe(plan: SamplingPlan, machine: Machine) -> dict[str, Parameter]:
    """The environment of the record. Keys that must agree for a comparison are listed in compare.HARD_KEYS."""
    host = machine.host
    values: dict[str, Parameter] = {
        "bench_version": BENCH_VERSION,
        "device": plan.device.partition(":")[0],
        "mode": "quick" if plan.quick else "full",
        "rounds": plan.rounds,
        "cpu": known_or(host.cpu_model, platform.processor() or "unknown"),
        "threads": plan.threads,
        "memory_gib": round(known_or(host.memory_total_bytes, psutil.virtual_memory().total) / GIB),
        "last_level_cache_bytes": plan.last_level_cache_bytes,
        "system": known_or(host.system, platform.system()),
        "kernel": known_or(host.kernel, platform.release()),
        **_openmp(),
        "virtualised": "yes" if "hypervisor" in plan.cpu_flags else "no",
    }
    gpu = gpu_of(plan.device, machine)
    if gpu is not None:
        capability = known_or(gpu.capability, (0, 0))
        values |= {
            "gpu": known_or(gpu.name, "unknown"),
            "gpus": plan.num_gpus,
            "capability": f"{capability[0]}.{capability[1]}",
            "gpu_memory_gib": round(known_or(gpu.memory_total_bytes, 0) / GIB),
            "pci_address": known_or(gpu.pci_address, ""),
            "near_cpus": len(plan.bind_cpus),
            "driver": known_or(machine.driver.library_version, "unknown"),
        }
    return values


def _openmp() -> dict[str, Parameter]:
    found = own_openmp()
    return {"openmp": found.runtime or "unknown", **{name.lower(): value for name, value in found.settings.items()}}


def gpu_of(device: str, machine: Machine) -> Gpu | None:
    """The facts of the GPU that `device` ('cuda:N', after CUDA_VISIBLE_DEVICES) names; None without them."""
    kind, _, ordinal = device.partition(":")
    return gpu_at(int(ordinal or 0), machine) if kind == "cuda" else None
