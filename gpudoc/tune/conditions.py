"""What must hold before a search begins: a system that can run it, GPUs to itself, a place for the profile."""

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
    """GpudocError (exit 1) when other processes compute on these GPUs (CUDA's numbers) and --shared was not given."""
    gpus = tuple(ordinals)
    others = require_alone(machine, gpus, shared=shared) if gpus else ""
    if others:
        progress.say(f"! {others}; these results are valid only while those processes run")


def check_writable(out: Path | None) -> None:
    """GpudocError when the profile could not be written; asked before the search begins.

    Where the user named the file `out`, its folder has to exist; the folders of gpudoc's own profiles are made.
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
        # asked of the file system itself, since an administrator passes every check of permissions
        with tempfile.TemporaryFile(dir=folder):
            return
    except OSError:
        message = f"{path.parent}: the profile cannot be written there"
        raise GpudocError(message, hint="choose another place: --out FILE") from None


def check_system(on_gpu: bool) -> None:
    """GpudocError where trials cannot be started (no fork), or on a CPU not be limited (no /proc)."""
    hint = "on Linux or inside WSL 2; or train without it: gpudoc train --batch-size N"
    if not hasattr(os, "fork"):
        raise GpudocError("tune starts its trials by fork, which this system does not have", hint=hint)
    if not on_gpu and not Path("/proc/self/status").exists():
        raise GpudocError("tune on a CPU needs an enforced memory limit, which only Linux has", hint=hint)


def free_host_bytes() -> int:
    """Memory that the trials may take on the host; GpudocError where that cannot be read and has to be said."""
    free = memory_free_bytes()
    if isinstance(free, Absent):
        raise GpudocError("the amount of free memory cannot be read here", hint="set it: --memory-limit 8GiB")
    return free
