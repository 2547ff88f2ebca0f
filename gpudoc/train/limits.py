"""Enforces a memory limit: a share of the card on CUDA, RLIMIT_DATA for a process on Linux."""

from __future__ import annotations

import torch

from gpudoc.doctor.card_memory import CardShare, below_the_host, half_of_the_host
from gpudoc.errors import ExitCode, GpudocError
from gpudoc.facts.host import is_wsl, memory_free_bytes
from gpudoc.facts.model import Absent
from gpudoc.process.memory import limit_memory, read_process_memory
from gpudoc.units import format_bytes


def apply(limit_bytes: int, device: torch.device) -> None:
    """Limit this process to `limit_bytes`; GpudocError if it already holds more."""
    if device.type != "cuda":
        try:
            held = read_process_memory().data_bytes
        except OSError:
            # only Linux has such a limit
            return
        if held >= limit_bytes:
            raise GpudocError(
                f"--memory-limit {format_bytes(limit_bytes)}: this process already holds {format_bytes(held)}",
                hint=f"--memory-limit {format_bytes(2 * held).replace(' ', '')} or more",
                exit_code=ExitCode.BAD_ANSWER,
            )
    enforce(limit_bytes, device)


def enforce(limit_bytes: int, device: torch.device) -> None:
    """Apply the limit without a check: on CUDA tensors get this share of the card, else allocations beyond it fail."""
    if device.type != "cuda":
        limit_memory(limit_bytes)
        return
    total = torch.cuda.get_device_properties(device).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, limit_bytes / total), device)


def card_share(device: torch.device) -> CardShare | None:
    """This process's share of a card that spills into the host's memory when it is full; None for other cards."""
    if device.type != "cuda":
        return None
    free = torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(device)
    if getattr(torch.cuda.get_device_properties(device), "is_integrated", False):
        return half_of_the_host(free)
    return below_the_host(free) if is_wsl() else None


def default_limit_bytes() -> int | None:
    """Half of the host's free memory for a new process; None if that is unknown."""
    free = memory_free_bytes()
    return None if isinstance(free, Absent) else free // 2
