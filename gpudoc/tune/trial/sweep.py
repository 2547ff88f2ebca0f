"""What killed processes leave behind, removed by those who live."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from gpudoc.process.lifetime import is_running


def sweep_shared_memory(first_pid: int, since: float) -> None:
    """Remove torch's shared memory files of this trial's dead processes; a killed process cannot do it itself."""
    for path in Path("/dev/shm").glob("torch_*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            pid = int(path.name.split("_")[1])
            status = path.stat()
            is_ours = status.st_uid == os.getuid() and status.st_ctime >= since and pid >= first_pid > 0
            if is_ours and not is_running(pid):
                path.unlink()


def clean_up_after_the_dead() -> None:
    """Remove the temporary folders of searches that were killed."""
    for folder in _tune_folders():
        with contextlib.suppress(ValueError, IndexError):
            pid = int(folder.name.split("-")[2])
            if not is_running(pid):
                shutil.rmtree(folder, ignore_errors=True)


def _tune_folders() -> Iterator[Path]:
    return Path(tempfile.gettempdir()).glob("gpudoc-tune-*")
