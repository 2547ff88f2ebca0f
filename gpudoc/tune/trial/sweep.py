"""Removes the leftovers of killed processes: shared memory of a search's trials, folders of earlier searches."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from gpudoc.patterns import Pattern
from gpudoc.process.lifetime import is_running
from gpudoc.temporary import find_folders, remove_folder

# variable with the folder in which a search's processes register
PROCESSES = "GPUDOC_TUNE_PROCESSES"
_NOTE = "process-"
_MEMORY = Pattern(r"torch_(\d+)_\d+(?:_\d+)?")
_SHARED = Path("/dev/shm")


def note_process() -> None:
    """Register this process with its search, which removes the process's shared memory if it is killed."""
    folder = os.environ.get(PROCESSES)
    if folder:
        with contextlib.suppress(OSError):
            (Path(folder) / f"{_NOTE}{os.getpid()}").touch()


def sweep_shared_memory(folder: Path, since: float) -> None:
    """Remove torch's shared memory of ended processes noted in `folder`, since a killed process cannot do so itself.

    Only files of this user, made after `since` (Unix time), that no process anywhere has open: in another container
    that shares /dev/shm, the same number is another process.
    """
    notes = {int(note.name.removeprefix(_NOTE)): note for note in folder.glob(f"{_NOTE}*")}
    ended = {pid: note for pid, note in notes.items() if not is_running(pid)}
    for path in _SHARED.glob("torch_*") if ended else ():
        match = _MEMORY.fullmatch(path.name)
        if match and int(match[1]) in ended:
            with contextlib.suppress(OSError):
                _remove_unused(path, since)
    for note in ended.values():
        note.unlink(missing_ok=True)


def clean_up_after_the_dead() -> None:
    """Remove the temporary folders of searches that were killed."""
    for folder in find_folders(("tune",)):
        remove_folder(folder)


def _remove_unused(path: Path, since: float) -> None:
    import fcntl

    handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(handle)
        if status.st_uid != os.getuid() or status.st_ctime < since:
            return
        # if another process opens the file now, we would get SIGIO, which ends a process; SIGURG is ignored
        fcntl.fcntl(handle, fcntl.F_SETSIG, signal.SIGURG)
        # granted only if no other process, in any namespace, has the file open or mapped
        fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        path.unlink()
    finally:
        os.close(handle)
