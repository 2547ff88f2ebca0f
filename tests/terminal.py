"""A real pseudo-terminal for tests of screens: what a person would see at the end, and the bytes that led to it."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import sys
import termios
from collections.abc import Callable, Mapping
from dataclasses import dataclass

_ESCAPE = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])")
_COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-8]|9[0-7])(?:;\d+)*m")


@dataclass(frozen=True)
class Screen:
    """The lines as they stand on the terminal at the end, the raw text, and the exit code."""

    lines: list[str]
    raw: str
    code: int

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    @property
    def coloured(self) -> bool:
        return _COLOUR.search(self.raw) is not None

    @property
    def moves(self) -> bool:
        """Whether anything was drawn over."""
        return "\r" in self.raw.replace("\r\n", "\n") or re.search(r"\x1b\[\d*[ABCDGHJKM]", self.raw) is not None


def run(command: list[str], columns: int = 80, env: Mapping[str, str | None] | None = None) -> Screen:
    """Run a command in a terminal of so many columns; a variable that is None is taken out of the environment."""

    def start() -> None:
        os.execvpe(command[0], command, _environment(env))

    return _in_terminal(start, columns)


def gpudoc(*arguments: str, columns: int = 80, env: Mapping[str, str | None] | None = None) -> Screen:
    """Run `gpudoc ARGUMENTS` in a terminal."""
    return run([sys.executable, "-m", "gpudoc", *arguments], columns, env)


def shown(speak: Callable[[], object], columns: int = 80, env: Mapping[str, str | None] | None = None) -> Screen:
    """What `speak` writes to stdout and stderr where both are a terminal; it runs in a forked process."""

    def start() -> None:
        wanted = _environment(env)
        os.environ.clear()
        os.environ.update(wanted)
        encoding = "ascii" if os.environ.get("LC_ALL") == "C" else "utf-8"
        for name, number in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
            stream = io.TextIOWrapper(
                io.FileIO(number, "r" if name == "stdin" else "w", closefd=False), encoding, write_through=True
            )
            setattr(sys, name, stream)
        speak()

    return _in_terminal(start, columns)


def _environment(changes: Mapping[str, str | None] | None) -> dict[str, str]:
    merged: dict[str, str | None] = {**os.environ, "TERM": "xterm-256color", "PYTHONIOENCODING": None}
    # what a runner of tests or CI may have set would decide instead of the terminal
    for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "GPUDOC_PLAIN"):
        merged[name] = None
    merged.update(changes or {})
    return {name: value for name, value in merged.items() if value is not None}


def _in_terminal(start: Callable[[], None], columns: int) -> Screen:
    pid, terminal = pty.fork()
    if pid == 0:
        code = 70
        try:
            fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
            start()
            code = 0
        except BaseException:
            import traceback

            os.write(2, traceback.format_exc().encode())
        finally:
            os._exit(code)
    read = bytearray()
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:
            # Linux says EIO where the last process that had the terminal is gone
            break
        if not part:
            break
        read += part
    os.close(terminal)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    raw = read.decode("utf-8", "replace")
    return Screen(lines_of(raw, columns), raw, code)


def lines_of(raw: str, columns: int) -> list[str]:
    """What stands on a terminal of so many columns after `raw` was written to it; long lines wrap as it wraps them."""
    rows: list[list[str]] = [[]]
    row = column = place = 0
    while place < len(raw):
        escape = _ESCAPE.match(raw, place)
        if escape is not None:
            place = escape.end()
            count = int(escape[1]) if escape[1].isdigit() else 0
            match escape[2]:
                case "A":
                    row = max(0, row - max(1, count))
                case "B":
                    row += max(1, count)
                case "C":
                    column += max(1, count)
                case "D":
                    column = max(0, column - max(1, count))
                case "G":
                    column = max(0, count - 1)
                case "K":
                    _blank(rows, row)[column if count == 0 else 0 :] = []
                case "J":
                    _blank(rows, row)[column:] = []
                    del rows[row + 1 :]
            continue
        letter = raw[place]
        place += 1
        if letter == "\n":
            row += 1
        elif letter == "\r":
            column = 0
        elif letter == "\b":
            column = max(0, column - 1)
        elif letter >= " ":
            if column >= columns:
                row, column = row + 1, 0
            cells = _blank(rows, row)
            cells.extend(" " * (column + 1 - len(cells)))
            cells[column] = letter
            column += 1
    lines = ["".join(cells).rstrip() for cells in rows]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _blank(rows: list[list[str]], row: int) -> list[str]:
    while len(rows) <= row:
        rows.append([])
    return rows[row]
