"""A file of gigabytes as bytes that are read when they are asked for, or one block after the other."""

from __future__ import annotations

import os
import sys
import zlib
from collections.abc import Iterator
from typing import IO

# searched at once
_WINDOW_BYTES = 16 << 20
_GZIP = b"\x1f\x8b"


def blocks(stream: IO[bytes], size: int) -> Iterator[bytes]:
    """What a file holds in blocks of at most `size`, unpacked when gzip wrote it, of a damaged one the beginning."""
    first = stream.read(size // 4)
    if first[:2] != _GZIP:
        while first:
            yield first
            first = stream.read(size)
        return
    packed = zlib.decompressobj(wbits=31)
    while fed := first or packed.unconsumed_tail or stream.read(size // 4):
        first = b""
        try:
            block = packed.decompress(fed, size)
        except zlib.error:
            return
        if block:
            yield block


class LargeFile:
    """What `bytes` can do that the readers need: a length, slices, `find` and `rfind`.

    It is not mapped into memory: of a log that is cut short meanwhile, as rotation does it, the rest reads as nothing,
    while a process that touches a mapped page that is gone is killed.
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
        """Where `word` begins for the first time between the two, or -1."""
        end = self._size if end is None else min(end, self._size)
        for start in range(begin, end, _WINDOW_BYTES):
            # a word may lie across two windows
            place = self[start : min(start + _WINDOW_BYTES + len(word) - 1, end)].find(word)
            if place >= 0:
                return start + place
        return -1

    def rfind(self, word: bytes, begin: int = 0, end: int | None = None) -> int:
        """Where `word` begins for the last time between the two, or -1."""
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
