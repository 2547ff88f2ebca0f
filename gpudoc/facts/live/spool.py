"""The output of a job in a file, so that the job outlives its reader; the part that was read is freed.

A pipe would block the job when nobody reads and end it when the reader dies. A file grows with the job, and in a folder
in memory it would end the other programs there; so the blocks that were read are given back to the system.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

# the end of the output that is kept for the final judgement
TAIL_BYTES = 400_000
_BLOCK_BYTES = 1 << 16
# freed in pieces of a size that no file system rounds
_FREED_AT_ONCE_BYTES = 1 << 20
# fallocate(2): FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE
_PUNCH_A_HOLE = 0x01 | 0x02


@dataclass(slots=True)
class Spool:
    """One stream of a job at `place`; `cannot_free` says why the bytes that were read still take room."""

    place: Path
    cannot_free: str = ""
    num_read: int = field(init=False, default=0)
    _freed: int = field(init=False, default=0)

    @property
    def num_bytes_kept(self) -> int:
        """Bytes that were read and still take room."""
        return self.num_read - self._freed

    def follow(self, sink: Callable[[bytes], None]) -> None:
        """Pass on the bytes written since the last call, and free those before the last TAIL_BYTES."""
        if not self.place.exists():
            return
        with self.place.open("rb") as file:
            file.seek(self.num_read)
            while block := file.read(_BLOCK_BYTES):
                self.num_read += len(block)
                sink(block)
                self._free()

    def tail(self) -> str:
        """The end of the output, in whole lines."""
        try:
            with self.place.open("rb") as file:
                begin = max(0, self.place.stat().st_size - TAIL_BYTES)
                file.seek(begin)
                text = file.read().decode("utf-8", "replace")
        except OSError:
            return ""
        # half a line may hold half a secret, which nobody can recognise
        return (text.partition("\n")[2] or text) if begin else text

    def _free(self) -> None:
        until = (self.num_read - TAIL_BYTES) // _FREED_AT_ONCE_BYTES * _FREED_AT_ONCE_BYTES
        if until <= self._freed or self.cannot_free:
            return
        try:
            _punch(self.place, self._freed, until - self._freed)
            self._freed = until
        except OSError as problem:
            self.cannot_free = problem.strerror or str(problem)


def _punch(place: Path, start: int, length: int) -> None:
    """Give a part of a file back; it then reads as zeros, and the file keeps its size and its writers."""
    if sys.platform != "linux":
        raise OSError(f"{sys.platform} has no holes to punch")
    handle = os.open(place, os.O_WRONLY | os.O_CLOEXEC)
    try:
        fallocate = ctypes.CDLL(None, use_errno=True).fallocate
        fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
        if fallocate(handle, _PUNCH_A_HOLE, start, length):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    finally:
        os.close(handle)
