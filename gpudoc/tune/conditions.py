"""Conditions for a search: a system that can run it, GPUs that no other process uses, a place for the profile."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from gpudoc.doctor.sharing import require_alone
from gpudoc.errors import GpudocError
from gpudoc.facts.host import memory_free_bytes
from gpudoc.facts.model import Absent, Machine
from gpudoc.profile import store
from gpudoc.progress import Progress
from gpudoc.shell import quote_path


def require_gpus(ordinals: Iterable[int], machine: Machine, progress: Progress, *, shared: bool) -> None:
    """Raise GpudocError (exit 1) if other processes compute on these GPUs (CUDA's numbers) without --shared."""
    gpus = tuple(ordinals)
    others = require_alone(machine, gpus, shared=shared) if gpus else ""
    if others:
        progress.say(f"! {others}; these results are valid only while those processes run")


def check_writable(out: Path | None) -> None:
    """Raise GpudocError if the profile cannot be written; called before the search begins.

    The folder must exist if the user named the file `out`; the folders of gpudoc's own profiles are created.
    """
    path = out or store.folder_to_write() / "probe.yaml"
    folder = path.parent
    if out is not None and not folder.is_dir():
        raise GpudocError(
            f"{path}: there is no folder {folder}",
            hint=f"mkdir -p {quote_path(folder)}, or choose another place for --out",
        )
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        if path.is_dir():
            raise IsADirectoryError
        # writes a real file, since an administrator passes every check of permissions
        with tempfile.TemporaryFile(dir=folder):
            return
    except OSError:
        message = f"{path.parent}: the profile cannot be written there"
        raise GpudocError(message, hint="choose another place: --out FILE") from None


def check_system(on_gpu: bool) -> None:
    """Raise GpudocError if trials cannot be started (no fork) or, on a CPU, cannot be limited (no /proc)."""
    hint = "on Linux or inside WSL 2; or train without it: gpudoc train --batch-size N"
    if not hasattr(os, "fork"):
        raise GpudocError("tune starts its trials by fork, which this system does not have", hint=hint)
    if not on_gpu and not Path("/proc/self/status").exists():
        raise GpudocError("tune on a CPU needs an enforced memory limit, which only Linux has", hint=hint)


def free_host_bytes() -> int:
    """Host memory that the trials may take; GpudocError if it cannot be read, so that the user must set it."""
    free = memory_free_bytes()
    if isinstance(free, Absent):
        raise GpudocError("the amount of free memory cannot be read here", hint="set it: --memory-limit 8GiB")
    return free
