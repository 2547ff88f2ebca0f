"""Writes small files that somebody asked for, whole or not at all."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from gpudoc.errors import GpudocError
from gpudoc.shell import quote_path

# a file, a link or a pipe that has this name already is neither opened nor followed
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


def write_whole(path: Path, text: str, *, hint: str, executable: bool = False) -> Path:
    """Write `text` to `path` so that a reader, a full disk or a kill never leaves half of it; returns `path`.

    A link is followed, and a terminal or a pipe is written to as it is. A file that is replaced keeps its mode.
    GpudocError, with `hint` as the way out, when the place cannot be written.
    """
    # imported only here: with its own imports, it would slow down every start
    from secrets import token_hex

    try:
        target = path.resolve()
        if target.exists() and not target.is_file():
            target.write_text(text, encoding="utf-8")
            return path
        part = target.with_name(f".{target.name}.{token_hex(4)}.tmp")
        handle = os.open(part, _NEW, 0o666)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                if target.exists():
                    part.chmod(stat.S_IMODE(target.stat().st_mode))
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
            if executable:
                part.chmod(0o755)
            part.replace(target)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        # the file is whole by now, and some file systems do not support this
        with contextlib.suppress(OSError):
            sync_folder(target.parent)
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise GpudocError(f"{path}: cannot be written: {reason}", hint=hint) from problem
    return path


def check_places(*places: Path | None) -> None:
    """Raise GpudocError if a file cannot be written to one of `places`, before minutes are spent on measuring."""
    for place in places:
        if place is None:
            continue
        folder = place.absolute().parent
        if place.is_dir():
            raise GpudocError(f"a folder, not a file: {place}", hint="name the file to write")
        if not folder.is_dir():
            raise GpudocError(f"no such folder: {folder}", hint=f"mkdir -p {quote_path(folder)}")
        if not os.access(place if place.exists() else folder, os.W_OK):
            raise GpudocError(f"cannot write there: {place}", hint="name a file in a folder that you can write to")


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder to disk; Windows cannot open folders, and keeps its names by itself."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
