"""Reads small files of /proc, /sys and /dev below a root; an unreadable file becomes an absent fact."""

from __future__ import annotations

import os
from pathlib import Path

from gpudoc.facts.model import Absent, Fact

_LARGEST_FILE = 4 << 20
# files in /proc are small, and one read of the largest size would first allocate that much memory
_PIECE = 64 << 10
# how a device file is opened; Windows has neither the flags nor the files
WITHOUT_WAITING = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


def read_text(root: Path, name: str) -> Fact[str]:
    """The stripped text of `name` below `root` (`cat name`); absent with the reason if it cannot be read."""
    data = read_bytes(root, name)
    return data if isinstance(data, Absent) else data.decode("utf-8", "replace").strip()


def read_bytes(root: Path, name: str, limit: int = _LARGEST_FILE) -> Fact[bytes]:
    """The first `limit` bytes of `name` below `root`; absent with the reason if it cannot be read."""
    try:
        found = bytearray()
        with (root / name).open("rb", buffering=0) as file:
            while piece := file.read(min(_PIECE, limit - len(found))):
                found += piece
        return bytes(found)
    except OSError as error:
        return Absent(reason_of(error, name))


def read_int(root: Path, name: str) -> Fact[int]:
    """The number that `name` below `root` holds, decimal or 0x-hexadecimal."""
    text = read_text(root, name)
    if isinstance(text, Absent):
        return text
    try:
        return int(text, 0)
    except ValueError:
        return Absent(f"not a number in /{name}")


def list_names(root: Path, name: str) -> Fact[tuple[str, ...]]:
    """The sorted names in the folder `name` below `root` (`ls name`)."""
    try:
        return tuple(sorted(entry.name for entry in (root / name).iterdir()))
    except OSError as error:
        return Absent(reason_of(error, name))


def link_name(root: Path, name: str) -> Fact[str]:
    """The last part of the target of the symbolic link `name` (`basename $(readlink name)`)."""
    try:
        return (root / name).readlink().name
    except OSError as error:
        return Absent(reason_of(error, name))


def exists(root: Path, name: str) -> bool:
    """Whether `name` is there below `root`, readable or not."""
    return os.path.lexists(root / name)


def reason_of(error: OSError, name: str) -> str:
    """The reason of a failed read, as an absent fact states it: 'no permission: /dev/kmsg'."""
    place = f"/{name.lstrip('/')}"
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return f"no such file: {place}"
    if isinstance(error, PermissionError):
        return f"no permission: {place}"
    return f"{(error.strerror or type(error).__name__).lower()}: {place}"
