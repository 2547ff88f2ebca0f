"""Ending with the parent, and taking in the orphans of children; both are promises that only Linux can keep."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def die_with_parent(parent: int, number: signal.Signals | None = None) -> None:
    """Have the kernel send `number` (SIGKILL) to this process when `parent`, which started it, ends, however that ends.

    Where `parent` has already ended, it is sent at once. To the kernel the parent is the thread that started this
    process: start it from a thread that lives as long as the process should.
    """
    if sys.platform != "linux":
        return
    number = number or signal.SIGKILL
    _prctl(_PR_SET_PDEATHSIG, number)
    # no signal comes for what was before the call; a server that forks on behalf of `parent` ends with it by itself
    if os.getppid() != parent and not is_running(parent):
        os.kill(os.getpid(), number)


def adopt_orphans(wanted: bool = True) -> None:
    """Become the parent of what children of this process leave behind, so that it can be ended; or no longer."""
    _prctl(_PR_SET_CHILD_SUBREAPER, int(wanted))


def is_running(pid: int) -> bool:
    """Whether a process is there and has not ended (`ps -o stat= -p PID` is neither empty nor Z)."""
    return state_of(pid) not in ("", "Z", "X")


def state_of(pid: int) -> str:
    """The state of a process as `ps -o state` writes it; '' when it cannot be read."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
