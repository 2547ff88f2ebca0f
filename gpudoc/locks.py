"""Locks on files: the kernel ends a lock when its owner ends in any way, and shows it across containers and NFS.

A process id does neither: in another container or on another machine, it means another process.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Literal

# what the kernel answers when somebody else holds the lock; any other error says nothing about that
_BUSY = (errno.EACCES, errno.EAGAIN)
_FLAGS = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
# a file that is removed between opening and locking is opened again
_ATTEMPTS = 20
_NOTE_BYTES = 1000

# "process": the lock ends with the process that took it, even if its children have the file open, or as soon as that
# process closes any descriptor of the file. "file": the lock ends when the last process that inherited the open file
# has closed it.
Owner = Literal["process", "file"]


class InUseError(Exception):
    """Somebody else holds the lock; the text is the file's content, which may be empty."""


@dataclass(slots=True)
class Lock:
    """A lock on the file at `path`; `why_not` says why there is no lock if the place has none.

    It ends when it is closed, or when nobody refers to this object any more.
    """

    path: Path
    stream: FileIO
    why_not: str = ""

    @property
    def handle(self) -> int:
        """The descriptor of the open file."""
        return self.stream.fileno()

    def read(self) -> str:
        """The file's content, at most 1000 bytes of it."""
        return _text(self.handle)

    def note(self, text: str) -> None:
        """Replace the file's content with `text`."""
        os.ftruncate(self.handle, 0)
        os.lseek(self.handle, 0, os.SEEK_SET)
        os.write(self.handle, text.encode())

    def close(self) -> None:
        """Give the lock back; the file stays."""
        self.stream.close()

    def remove(self) -> None:
        """Remove the file, then give the lock back. A process that has it open notices: `take_lock` opens it again."""
        with contextlib.suppress(OSError):
            if not self.why_not and is_same_file(self.path, self.handle):
                self.path.unlink()
        self.close()


def take_lock(path: Path, *, owner: Owner, create: bool = True) -> Lock:
    """The lock on the file at `path`, which is created if it is missing; a link is not followed.

    InUseError when somebody else holds it, OSError when the file cannot be opened or is not a plain file.
    """
    for _ in range(_ATTEMPTS):
        handle = os.open(path, _FLAGS | (os.O_CREAT if create else 0), 0o666)
        with contextlib.ExitStack() as opened:
            stream = opened.enter_context(FileIO(handle, "r+"))
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise OSError(errno.EINVAL, "not a plain file", str(path))
            try:
                why_not = _lock(handle, owner)
            except InUseError:
                raise InUseError(_text(handle)) from None
            if is_same_file(path, handle):
                opened.pop_all()
                return Lock(path, stream, why_not)
    raise InUseError("")


def is_same_file(path: Path, handle: int) -> bool:
    """Whether the file that is open as `handle` is still the one at `path`."""
    try:
        return os.path.samestat(path.lstat(), os.fstat(handle))
    except OSError:
        return False


def _text(handle: int) -> str:
    os.lseek(handle, 0, os.SEEK_SET)
    return os.read(handle, _NOTE_BYTES).decode("utf-8", "replace")


def _lock(handle: int, owner: Owner) -> str:
    """Lock the file, or say why there are no locks here; InUseError when somebody else holds it."""
    reason = "this system has no such locks"
    if sys.platform != "win32":
        try:
            import fcntl
        except ImportError:
            return reason
        for take in (fcntl.lockf,) if owner == "process" else (fcntl.flock, fcntl.lockf):
            try:
                take(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as problem:
                if problem.errno in _BUSY:
                    raise InUseError from None
                reason = problem.strerror or str(problem)
            else:
                return ""
    return reason
