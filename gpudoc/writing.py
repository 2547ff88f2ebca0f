"""Small files that somebody asked for, written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from gpudoc.errors import GpudocError


def write_whole(path: Path, text: str, *, hint: str, executable: bool = False) -> Path:
    """Write `text` to `path` so that a reader, a full disk or a kill never leaves half of it; returns `path`.

    A link is followed, and what is no file (a terminal, a pipe) is written to as it is. GpudocError, with `hint` as the
    way out, when the place cannot be written.
    """
    try:
        target = path.resolve()
        if target.exists() and not target.is_file():
            target.write_text(text, encoding="utf-8")
            return path
        part = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        try:
            with part.open("w", encoding="utf-8") as stream:
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
            if executable:
                part.chmod(0o755)
            part.replace(target)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise GpudocError(f"{path}: cannot be written: {reason}", hint=hint) from problem
    return path


def own_prefix(name: str) -> str:
    """The prefix of a temporary folder of this process; by the number in it others see whether its owner lives."""
    return f"gpudoc-{name}-{os.getpid()}-"
