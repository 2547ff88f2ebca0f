"""A file of gigabytes as bytes that are read on demand, or block by block."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

# bytes that are searched at once
_WINDOW_BYTES = 16 << 20
GZIP = b"\x1f\x8b"
MOST_PARTS = 100_000
# the data after a part is fed in small, growing pieces, because the bytes behind a small part are copied back
_FIRST_PIECE = 1 << 12


class TooManyPartsError(Exception):
    """The gzip data has more parts than any program writes."""


def open_regular(path: Path) -> int:
    """A handle of a regular file; OSError, without waiting, for anything else, such as a pipe that replaced it."""
    from gpudoc.reading import HOW_TO_OPEN

    handle = os.open(path, HOW_TO_OPEN)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "it was replaced while gpudoc opened it, and is no longer a file", str(path))
    return handle


def read_head(path: Path, size: int) -> bytes:
    """At most the first `size` bytes, unpacked if gzip wrote them; empty if the file cannot be read."""
    try:
        if not path.is_file():
            return b""
        with os.fdopen(open_regular(path), "rb") as file:
            head = file.read(size)
        return zlib.decompressobj(wbits=31).decompress(head, size) if head[:2] == GZIP else head
    except (OSError, zlib.error):
        return b""


def blocks(data: bytes | LargeFile, size: int) -> Iterator[bytes]:
    """The content of a file in blocks of at most `size`, unpacked if gzip wrote it; the beginning if it is damaged."""
    if data[:2] != GZIP:
        for begin in range(0, len(data), size):
            # if a log is cut short meanwhile, its rest reads as nothing
            if block := data[begin : begin + size]:
                yield block
        return
    with contextlib.suppress(zlib.error, TooManyPartsError):
        yield from unpack(data, size)


def unpack(data: bytes | LargeFile, size: int) -> Iterator[bytes]:
    """The unpacked gzip data in blocks of at most `size`; the part that is left if the file was cut off.

    zlib.error if the data is damaged, TooManyPartsError if it would keep a reader busy with next to nothing.
    """
    packed, place, piece, parts = zlib.decompressobj(wbits=31), 0, size, 0
    while fed := packed.unconsumed_tail or data[place : place + piece]:
        place += 0 if packed.unconsumed_tail else len(fed)
        if block := packed.decompress(fed, size):
            yield block
        if packed.eof:
            place -= len(packed.unused_data)
            parts += 1
            if parts > MOST_PARTS:
                raise TooManyPartsError
            if data[place : place + 2] != GZIP:
                return
            packed, piece = zlib.decompressobj(wbits=31), _FIRST_PIECE
        else:
            piece = min(2 * piece, size)
    if block := packed.flush():
        yield block


class LargeFile:
    """A file with the methods of `bytes` that the readers need: a length, slices, `find` and `rfind`.

    It is not mapped into memory: if a log is cut short meanwhile, for example by rotation, its rest reads as nothing,
    but a process that touches a lost page of a mapped file is killed.
    """

    __slots__ = ("_handle", "_size")

    def __init__(self, handle: int, size: int) -> None:
        """`handle` is an open file, which is closed with this object."""
        self._handle = handle
        self._size = size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice) -> bytes:
        begin, end, _ = part.indices(self._size)
        pieces = []
        while begin < end and (piece := _read_at(self._handle, end - begin, begin)):
            pieces.append(piece)
            begin += len(piece)
        return b"".join(pieces)

    def __del__(self) -> None:
        os.close(self._handle)

    def find(self, word: bytes, begin: int = 0, end: int | None = None) -> int:
        """The first place of `word` between `begin` and `end`, or -1."""
        end = self._size if end is None else min(end, self._size)
        for start in range(begin, end, _WINDOW_BYTES):
            # a word may lie across two windows
            place = self[start : min(start + _WINDOW_BYTES + len(word) - 1, end)].find(word)
            if place >= 0:
                return start + place
        return -1

    def rfind(self, word: bytes, begin: int = 0, end: int | None = None) -> int:
        """The last place of `word` between `begin` and `end`, or -1."""
        end = self._size if end is None else min(end, self._size)
        while end > begin:
            start = max(begin, end - _WINDOW_BYTES)
            place = self[start:end].rfind(word)
            if place >= 0:
                return start + place
            if start == begin:
                return -1
            end = start + len(word) - 1
        return -1


def _read_at(handle: int, num_bytes: int, begin: int) -> bytes:
    if sys.platform == "win32":
        os.lseek(handle, begin, os.SEEK_SET)
        return os.read(handle, num_bytes)
    else:
        return os.pread(handle, num_bytes, begin)
