"""Lets a process end with its parent, and adopt the orphans of its children; only Linux can do either."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def die_with_parent(parent: int, number: signal.Signals | None = None) -> None:
    """Have the kernel send `number` (SIGKILL) to this process when `parent`, which started it, ends in any way.

    The signal comes at once if `parent` has already ended. For the kernel, the parent is the thread that started this
    process: start it from a thread that lives as long as the process should.
    """
    if sys.platform != "linux":
        return
    number = number or signal.SIGKILL
    _prctl(_PR_SET_PDEATHSIG, number)
    # no signal comes if the parent ended before the call; a server that forks for `parent` ends with it by itself
    if os.getppid() != parent and not is_running(parent):
        os.kill(os.getpid(), number)


def adopt_orphans(wanted: bool = True) -> None:
    """Become the parent of processes that our children leave behind, so that we can end them; or stop that."""
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
