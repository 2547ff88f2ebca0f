"""Several files as one run of bytes, so that an edit may change what they hold, their names, and where one ends."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

_BEGINS = b"\n=== the file "
_HEAD = re.compile(rb"\n=== the file ([^\n]{0,300})\n")
_LONGEST_NAME, _MOST_FILES = 100, 200


def pack(files: Mapping[str, bytes]) -> bytes:
    """The files by name, each behind a line that names it."""
    return b"".join(_BEGINS + name.encode() + b"\n" + content for name, content in files.items())


def unpack(content: bytes, folder: Path) -> list[Path]:
    """Write the files below a new folder, whatever became of their names; bytes that nothing names are one file."""
    folder.mkdir()
    first, *rest = _HEAD.split(content)
    named = list(zip(rest[::2], rest[1::2], strict=True))[:_MOST_FILES] or [(b"job.log", first)]
    return [path for name, held in named if (path := _write(folder, name, held)) is not None]


def _write(folder: Path, name: bytes, held: bytes) -> Path | None:
    parts = [part[:_LONGEST_NAME] for part in name.replace(b"\0", b"").split(b"/") if part not in (b"", b".", b"..")]
    path = folder.joinpath(*(part.decode("utf-8", "surrogateescape") for part in parts or [b"x"]))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(held)
    except OSError:
        # a file has the name of a folder
        return None
    return path
