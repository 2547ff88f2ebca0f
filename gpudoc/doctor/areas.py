"""The areas that causes belong to, in the words in which a screen groups checks."""

from __future__ import annotations

from collections.abc import Iterable

# the first area of which a word begins or ends a cause's id, or stands in it between underscores; in the order shown
_WORDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("container", ("container", "wsl", "cgroup")),
    ("network", ("nccl", "ddp", "port", "p2p", "communication", "ranks", "dataparallel", "machines")),
    ("memory", ("oom", "leak", "memory", "shm", "vram", "contexts", "orphaned")),
    ("PyTorch", ("torch", "wheel", "archs", "arch", "extension", "numpy2", "triton", "duplicate", "packages", "glibc",
                 "libstdcxx", "python", "bundled", "mps_macos", "library", "accelerator", "kernel_fails", "linkable",
                 "dll")),
    ("driver", ("driver", "cuda_init", "libcuda", "nouveau", "secure", "uvm", "nodes", "permission", "forward", "mps",
                "vfio", "fabric", "visible")),
    ("GPU", ("gpu", "gpus", "pcie", "nvlink", "thermal", "power", "mig", "ecc", "gsp", "vgpu", "compute_mode", "bus")),
    ("data", ("loader", "dataloader", "worker", "workers", "storage", "decode", "collate", "disk", "files")),
)  # fmt: skip
_REST = "program"
AREAS = ("GPU", "driver", "PyTorch", "container", "memory", "data", "network", _REST)
# whose name would put them elsewhere
_OTHERWISE = {
    "worker_copy_on_write_growth": "memory",
    "cuda_in_forked_worker": "data",
    "driver_library_mismatch": "driver",
    "bf16_unsupported_gpu": "PyTorch",
    "python_bound": _REST,
    "gpu_sync_each_step": _REST,
    "gpu_shared": "GPU",
    "process_far_from_gpu": "GPU",
    "no_gpu_on_machine": "GPU",
    "gpu_newer_than_wheel_archs": "PyTorch",
    "gpu_older_than_wheel_archs": "PyTorch",
    "vgpu_unlicensed": "GPU",
    "system_files_not_answering": _REST,
    "host_memory_low": "memory",
    "illegal_memory_access": _REST,
    "process_limit_low": _REST,
    "cgroup_cpu_limit": "container",
}


def area_of(cause_id: str) -> str:
    """The area of a cause, 'program' for what belongs to no other."""
    if cause_id in _OTHERWISE:
        return _OTHERWISE[cause_id]
    padded = f"_{cause_id}_"
    return next((area for area, words in _WORDS if any(f"_{word}_" in padded for word in words)), _REST)


def count_by_area(ids: Iterable[str]) -> dict[str, int]:
    """How many of the causes belong to each area, in the order in which areas are shown; areas without any left out."""
    counts = dict.fromkeys(AREAS, 0)
    for cause_id in ids:
        counts[area_of(cause_id)] += 1
    return {area: count for area, count in counts.items() if count}
