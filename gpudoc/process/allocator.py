"""The environment that sets up an allocator: glibc's malloc on a CPU, torch's caching allocator on a GPU."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

# glibc's settings per allocator of a profile; they act only from the start of a process. With glibc's own, blocks above
# the threshold stay in arenas and the heap: the largest batch then wanders and is up to 23 % lower (119 to 120 instead
# of 155 samples of a transformer under 1536 MiB, 2026-11-20)
MALLOC = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": "1048576",
    "MALLOC_TRIM_THRESHOLD_": "1048576",
}
EXPANDABLE = "expandable_segments:True"
CUDA_NAME, NEW_NAME = "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"
# 2.9 warns of the old name, but takes expandable segments on CUDA from no other (pytorch issue 183387: 2.11 takes both)
_NEW_NAME_SINCE = (2, 11)
_DEVICE = {"exact": "cpu", "expandable": "cuda"}


def missing_environment(
    allocator: str, device_type: str | None = None, given: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The variables that `allocator` needs and `given` (this process's own, when None) lacks; empty when it has them.

    With a `device_type` ('cpu', 'cuda') also empty where the allocator is another device's.
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
    """Expandable segments added to what the user set, under the name that this torch reads.

    What the user said of them stays. Where both names are set, torch reads the old one.
    """
    name = NEW_NAME if CUDA_NAME not in given and _torch_release() >= _NEW_NAME_SINCE else CUDA_NAME
    if "expandable_segments" in given.get(name, ""):
        return {}
    said = given.get(name) or given.get(NEW_NAME, "")
    return {name: said if "expandable_segments" in said else ",".join(filter(None, (said, EXPANDABLE)))}


def _torch_release() -> tuple[int, int]:
    """Major and minor number of the installed torch, which is not imported for it; (0, 0) when they are not known."""
    try:
        found = re.match(r"(\d+)\.(\d+)", version("torch"))
    except PackageNotFoundError:
        return 0, 0
    return (int(found[1]), int(found[2])) if found else (0, 0)
