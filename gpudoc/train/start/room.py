"""The error for a GPU without room for a training: how full it is, who holds the memory, how much is needed."""

from __future__ import annotations

import os
from collections.abc import Callable

import torch

from gpudoc.doctor.causes.holders import describe_holder, end_of
from gpudoc.errors import ExitCode, GpudocError
from gpudoc.facts.identify import gpu_at
from gpudoc.facts.model import Absent, Gpu, GpuProcess, Machine
from gpudoc.process.shortage import is_out_of_memory
from gpudoc.train.ranks.distributed import AbandonedError
from gpudoc.train.ranks.fsdp import COPIES
from gpudoc.units import format_bytes
from gpudoc.workload.build import Workload

_MOST_NAMED = 3
# the message of a GPU in exclusive mode that another process uses
_TAKEN = "busy or unavailable"


def is_taken(problem: BaseException) -> bool:
    """Whether a GPU works, but other processes hold its memory or, in exclusive mode, the whole GPU."""
    return is_out_of_memory(problem) or isinstance(problem, AbandonedError) or _TAKEN in str(problem)


def no_room(
    device: torch.device, workload: Workload, collect: Callable[[], Machine], limit_bytes: int | None = None
) -> GpudocError:
    """Why a training could not begin on `device`: its memory, the processes that hold some, the model's needs.

    `limit_bytes` is the value of --memory-limit.
    """
    needed = _needed_bytes(workload)
    needs = "" if needed is None else f"; weights, gradients and optimizer state need {format_bytes(needed)}"
    if device.type == "cpu" or limit_bytes is not None:
        under = "" if limit_bytes is None else f" under --memory-limit {format_bytes(limit_bytes)}"
        message = f"out of memory before the first step{under}{needs}"
        hint = "use a higher --memory-limit, or a smaller model"
        return GpudocError(message, hint=hint, exit_code=ExitCode.BAD_ANSWER)
    index = device.index or 0
    machine = collect()
    gpu = gpu_at(index, machine)
    others = _others(gpu)
    said = [f"{device} has too little free memory to begin: {_fill(gpu)}"]
    if others:
        said += map(describe_holder, others[:_MOST_NAMED])
    if needs:
        needs += ", plus CUDA's own context"
    return GpudocError("; ".join(said) + needs, hint=_way_out(machine, index, others), exit_code=ExitCode.BAD_ANSWER)


def _fill(gpu: Gpu | None) -> str:
    mode = Absent("not known") if gpu is None else gpu.compute_mode
    if not isinstance(mode, Absent) and mode != "default":
        return f"its compute mode is {mode}"
    if gpu is None or isinstance(gpu.memory_total_bytes, Absent):
        return "out of memory"
    total = format_bytes(gpu.memory_total_bytes)
    own = next((process.memory_bytes for process in _processes(gpu) if process.pid == os.getpid()), 0)
    if isinstance(gpu.memory_free_bytes, Absent) or isinstance(own, Absent):
        return f"out of memory on {total}"
    # memory that this process took before it failed is free again when it ends
    return f"{format_bytes(gpu.memory_free_bytes + own)} of {total} is free"


def _processes(gpu: Gpu | None) -> tuple[GpuProcess, ...]:
    return () if gpu is None or isinstance(gpu.processes, Absent) else gpu.processes


def _others(gpu: Gpu | None) -> list[GpuProcess]:
    others = [process for process in _processes(gpu) if process.pid != os.getpid()]
    return sorted(others, key=lambda p: -1 if isinstance(p.memory_bytes, Absent) else p.memory_bytes, reverse=True)


def _needed_bytes(workload: Workload) -> int | None:
    """The model's memory before the first batch; None if it cannot be built."""
    try:
        model = workload.build_model()
    except Exception:
        # this is only about memory; a model that fails gets its own message in a run that reaches it
        return None
    name = workload.config.optimizer.target.partition(":")[2]
    trained = sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
    held = sum(p.numel() * p.element_size() for p in model.parameters())
    return held + trained * (COPIES.get(name, 4) - 1)


def _way_out(machine: Machine, index: int, others: list[GpuProcess]) -> str:
    free = {other: gpu_at(other, machine) for other in range(torch.cuda.device_count()) if other != index}
    rooms = [
        (gpu.memory_free_bytes, ordinal)
        for ordinal, gpu in free.items()
        if gpu is not None and not isinstance(gpu.memory_free_bytes, Absent)
    ]
    # the user must not end another user's process
    end = end_of(others[0]) if others else ""
    ask = f"wait for it or ask its owner (pid {others[0].pid})" if others else ""
    ways = [f"end it: {end}" if end else ask] if others else ["use a smaller model, or more GPUs to spread it over"]
    if rooms and others and "RANK" not in os.environ:
        most, ordinal = max(rooms)
        ways.append(f"or use --device cuda:{ordinal}, where {format_bytes(most)} is free")
    return "; ".join(ways)
