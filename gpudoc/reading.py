"""Small files that a person wrote or saved, as text; a mistake in one is named by file, line and column."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

from gpudoc.control_characters import escape_line
from gpudoc.errors import GpudocError
from gpudoc.shell import quote, quote_path

MAX_BYTES = 1 << 20
# without O_NONBLOCK, opening a pipe waits until somebody writes into it; Windows has other flags
_FLAGS = ("O_NONBLOCK", "O_CLOEXEC", "O_NOCTTY", "O_BINARY")
HOW_TO_OPEN = os.O_RDONLY | sum(getattr(os, flag, 0) for flag in _FLAGS)


class UnreadableError(GpudocError):
    """A file that cannot be used: `reason` says why without naming the file, with line and column where known."""

    def __init__(self, name: str, reason: str, *, hint: str = "", line: int = 0, column: int = 0) -> None:
        place = f":{line}:{column}" if column else f":{line}" if line else ""
        super().__init__(f"{escape_line(name)}{place}: {reason}", hint=hint)
        self.reason = f"{reason}, line {line}" if line else reason


def is_file(source: str) -> bool:
    """Whether `source` names a file; False for a pasted text that is longer than any path may be."""
    return os.path.isfile(source)  # noqa: PTH113 - `Path.is_file` fails there


def read_bytes(path: Path, what: str, *, most_bytes: int = MAX_BYTES) -> bytes:
    """The bytes of a file or of a pipe that somebody writes into; UnreadableError when there is neither.

    `what` names the kind of file. It never reads a device, and does not wait for a pipe that nobody writes into.
    """
    try:
        handle = os.open(path, HOW_TO_OPEN)
        try:
            kind = os.fstat(handle).st_mode
            if stat.S_ISDIR(kind):
                raise UnreadableError(str(path), f"a folder, not a {what} file", hint="name the file in it")
            if not stat.S_ISREG(kind) and not stat.S_ISFIFO(kind):
                raise UnreadableError(str(path), f"a device, not a {what} file", hint="name a file")
            # reading a pipe without a writer returns at once, however long the opening would have waited
            if sys.platform != "win32":
                os.set_blocking(handle, True)
            with os.fdopen(handle, "rb", closefd=False) as file:
                data = file.read(most_bytes + 1)
        finally:
            os.close(handle)
    except FileNotFoundError:
        raise UnreadableError(str(path), f"no such {what} file") from None
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        raise UnreadableError(str(path), f"cannot be read: {reason}", hint=f"ls -l {quote_path(path)}") from None
    if len(data) > most_bytes:
        text = f"too large: a {what} is at most {most_bytes >> 20} MiB"
        raise UnreadableError(str(path), text, hint="is this the right file?")
    if not data and stat.S_ISFIFO(kind):
        raise UnreadableError(str(path), "a pipe without a writer", hint="name a file")
    return data


def read_text(path: Path, what: str, *, most_bytes: int = MAX_BYTES) -> str:
    """The text of a file in UTF-8; UnreadableError with the line and column of the first byte that is not."""
    data = read_bytes(path, what, most_bytes=most_bytes)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "latin1"
        before, new = data[: problem.start], quote(f"new{path.suffix}")
        raise UnreadableError(
            str(path),
            f"not UTF-8 text (byte {problem.start}), so not a {what} file",
            hint=f"is this the right file? if it is: iconv -f {encoding} -t utf-8 {quote_path(path)} > {new}",
            line=before.count(b"\n") + 1,
            column=len(before[before.rfind(b"\n") + 1 :].decode("utf-8", "replace")) + 1,
        ) from None
