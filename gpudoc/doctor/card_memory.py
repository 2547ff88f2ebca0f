"""How much of a card's free memory one program may use, which is not always all of it."""

from __future__ import annotations

from gpudoc.facts.identify import cuda_device_at, gpu_at
from gpudoc.facts.model import Absent, Machine
from gpudoc.frozen import dataclass
from gpudoc.units import GIB, format_bytes

# room for windows and videos that the user opens while a trial runs
_DISPLAY_BYTES, _DISPLAY_SHARE = GIB, 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class CardShare:
    """The memory that a program may use, and why. `is_enforced`: gpudoc must enforce it, as CUDA raises no error."""

    limit_bytes: int
    why: str
    is_enforced: bool = False


def share_of_card(free_bytes: int, ordinal: int, machine: Machine) -> CardShare:
    """The share of `free_bytes` on CUDA device `ordinal`: less with a display, half if the system shares it."""
    device, gpu = cuda_device_at(ordinal, machine), gpu_at(ordinal, machine)
    if device is not None and device.integrated is True:
        return half_of_the_host(free_bytes)
    spills = machine.host.wsl is True
    if gpu is None or gpu.display_attached is not True:
        return below_the_host(free_bytes) if spills else CardShare(limit_bytes=free_bytes, why="what is free now")
    total = free_bytes if isinstance(gpu.memory_total_bytes, Absent) else gpu.memory_total_bytes
    kept = min(free_bytes // 2, max(_DISPLAY_BYTES, int(_DISPLAY_SHARE * total)))
    why = f"what is free now less {format_bytes(kept)} for the display"
    return CardShare(limit_bytes=free_bytes - kept, why=why, is_enforced=True)


def half_of_the_host(free_bytes: int) -> CardShare:
    """The share of a GPU without dedicated memory: the system would run out of memory before CUDA does."""
    why = f"half of the {format_bytes(free_bytes)} of free memory, which this GPU shares with the system"
    return CardShare(limit_bytes=free_bytes // 2, why=why, is_enforced=True)


def below_the_host(free_bytes: int) -> CardShare:
    """The share under Windows' driver, which continues in host memory, far more slowly, when the card is full."""
    why = "what is free now; beyond that, Windows' driver would continue in host memory"
    return CardShare(limit_bytes=free_bytes, why=why, is_enforced=True)
