"""The most memory that this process held, on its GPU or its host; asking starts nothing on a GPU."""

from __future__ import annotations

import sys
from typing import Any


def cuda() -> Any:
    """torch.cuda where the script has started it; None elsewhere."""
    torch: Any = sys.modules.get("torch")
    found = getattr(torch, "cuda", None)
    return found if found is not None and found.is_initialized() else None


def peaks() -> dict[str, int | None]:
    """Peak bytes: reserved and allocated of the current GPU, else private memory as RLIMIT_DATA counts it."""
    device = cuda()
    if device is not None:
        return {
            "peak_bytes": int(device.max_memory_reserved()),
            "peak_allocated_bytes": int(device.max_memory_allocated()),
            "device_bytes": int(device.memory_reserved() + device.mem_get_info()[0]),
        }
    return {"peak_bytes": _private_peak_bytes(), "peak_allocated_bytes": None, "device_bytes": None}


def allocator() -> dict[str, int]:
    """What the CUDA allocator and the card say now, in bytes; empty where CUDA was not started."""
    device = cuda()
    if device is None:
        return {}
    statistics = device.memory_stats()
    names = {
        "allocated": "allocated_bytes.all.current",
        "peak_allocated": "allocated_bytes.all.peak",
        "reserved": "reserved_bytes.all.current",
        "peak_reserved": "reserved_bytes.all.peak",
        "inactive_split": "inactive_split_bytes.all.current",
    }
    told = {name: int(statistics[key]) for name, key in names.items() if key in statistics}
    free, total = device.mem_get_info()
    return {**told, "retries": int(statistics.get("num_alloc_retries", 0)), "free": int(free), "total": int(total)}


def _private_peak_bytes() -> int | None:
    # the same arithmetic as gpudoc's process/memory.py, which cannot be imported here
    sizes = {}
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            for line in file:
                name, _, rest = line.partition(":")
                if name in ("VmPeak", "VmSize", "VmData"):
                    sizes[name] = int(rest.split()[0]) * 1024
    except OSError:
        return None
    if len(sizes) < 3:
        return None
    return sizes["VmPeak"] - (sizes["VmSize"] - sizes["VmData"])
