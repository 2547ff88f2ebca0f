"""Text that somebody pipes into a command without saying `-`."""

from __future__ import annotations

import array
import os
import stat
import sys
from collections.abc import Sequence
from pathlib import Path


def is_text_piped_in(handle: int = 0) -> bool:
    """Whether a text waits on stdin that is meant for this process alone.

    False for a terminal, an empty pipe, and for what the parent reads too: the rest of a script or of a list that a
    shell takes line by line. The text is left where it is.
    """
    return waits(handle) and not _is_the_parents(handle)


def waits(handle: int = 0) -> bool:
    """Whether bytes wait on stdin that somebody piped or redirected into it; nothing is waited for."""
    try:
        status = os.fstat(handle)
        if stat.S_ISREG(status.st_mode):
            return os.lseek(handle, 0, os.SEEK_CUR) < status.st_size
    except OSError:
        return False
    return stat.S_ISFIFO(status.st_mode) and _num_waiting(handle) > 0


def sources_or_stdin(sources: Sequence[str] | None, *, asks_else: bool) -> tuple[str, ...]:
    """The sources that were typed; without any, and without something else that is asked, what is piped in: '-'."""
    return ("-",) if not sources and not asks_else and is_text_piped_in() else tuple(sources or ())


def point_out_unread(sources: Sequence[str]) -> None:
    """Say on stderr that a text waits on stdin, where one does and no source was given."""
    if not sources and waits():
        from gpudoc.render.console import print_lines

        print_lines("gpudoc: text is waiting on stdin, but was not read; to read it: gpudoc doctor -", sys.stderr)


def _num_waiting(handle: int) -> int:
    """How many bytes are in a pipe; 0 where the system cannot say."""
    if sys.platform == "win32":
        return 0
    import fcntl
    import termios

    held = array.array("i", [0])
    try:
        fcntl.ioctl(handle, termios.FIONREAD, held)
    except OSError:
        return 0
    return held[0]


def _is_the_parents(handle: int) -> bool:
    """Whether the parent's stdin is the same file; True where that cannot be asked: reading takes it away."""
    try:
        own, parents = os.fstat(handle), Path(f"/proc/{os.getppid()}/fd/{handle}").stat()
    except OSError:
        return True
    return (own.st_dev, own.st_ino) == (parents.st_dev, parents.st_ino)
