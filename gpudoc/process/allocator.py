"""The environment that sets up an allocator: glibc's malloc on a CPU, torch's caching allocator on a GPU."""

from __future__ import annotations

import os
from collections.abc import Mapping

# glibc's settings per allocator of a profile; they act only from the start of a process. With glibc's own, blocks above
# the threshold stay in arenas and the heap: the largest batch then varies, and is up to 23 % lower (119 to 120 instead
# of 155 samples of a transformer under 1536 MiB, 2026-11-20)
MALLOC = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": "1048576",
    "MALLOC_TRIM_THRESHOLD_": "1048576",
}
EXPANDABLE = "expandable_segments:True"
# torch 2.9 warns about the first name and recommends the second, but reads expandable segments on CUDA only from the
# first (pytorch issue 183387); all versions up to 2.13 read the first, and it wins if both are set
CUDA_NAME, COMMON_NAME = "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"
_DEVICE = {"exact": "cpu", "expandable": "cuda"}


def missing_environment(
    allocator: str, device_type: str | None = None, given: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The variables that `allocator` needs and `given` (this process's own, when None) lacks; empty when it has them.

    Also empty if `device_type` ('cpu', 'cuda') is given and the allocator belongs to another device.
    """
    known = os.environ if given is None else given
    if device_type not in (None, _DEVICE.get(allocator)):
        return {}
    match allocator:
        case "exact":
            return {name: value for name, value in MALLOC.items() if known.get(name) != value}
        case "expandable":
            return _expandable(known)
    return {}


def _expandable(given: Mapping[str, str]) -> dict[str, str]:
    """Expandable segments, added to what the user set under either name; the user's own setting for them stays."""
    if "expandable_segments" in given.get(CUDA_NAME, ""):
        return {}
    said = given.get(CUDA_NAME) or given.get(COMMON_NAME, "")
    return {CUDA_NAME: said if "expandable_segments" in said else ",".join(filter(None, (said, EXPANDABLE)))}
