"""A command's output, passed through as it comes: a terminal stays a terminal, a pipe a pipe; its end is kept."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import pty
import select
import struct
import termios
from collections.abc import Callable

KEPT_BYTES = 400_000
_PIECE_BYTES = 1 << 16

Sink = Callable[[int, bytes], None]


class OutputRelay:
    """The command's stdout and stderr on one side, `sink(1 or 2, bytes)` on the other.

    What is a terminal here is one for the command, of the same size; one for both where both are the same. With
    `all_to_stderr` stdout belongs to gpudoc alone, and what the command writes there goes to stderr.
    """

    def __init__(self, sink: Sink, *, all_to_stderr: bool = False) -> None:
        self._sink = sink
        self._tails: dict[int, bytearray] = {1: bytearray(), 2: bytearray()}
        # who reads: its number for the command, and where its size is to be taken from
        self._readers: dict[int, tuple[int, int | None]] = {}
        self._writers: dict[int, int] = {}
        shown = {1: 2 if all_to_stderr else 1, 2: 2}
        for number in (1, 2):
            if number == 2 and _same_terminal(shown[1], shown[2]):
                self._writers[2] = self._writers[1]
                continue
            terminal = shown[number] if os.isatty(shown[number]) else None
            reader, writer = _terminal(terminal) if terminal is not None else os.pipe()
            self._readers[reader] = (number, terminal)
            self._writers[number] = writer

    @property
    def stdout(self) -> int:
        """What the command gets as its stdout."""
        return self._writers[1]

    @property
    def stderr(self) -> int:
        """What the command gets as its stderr."""
        return self._writers[2]

    def started(self) -> None:
        """The command has its ends now; ours are closed, so that its end is seen."""
        for writer in set(self._writers.values()):
            os.close(writer)
        self._writers.clear()

    def fileno_list(self) -> list[int]:
        """What becomes readable when the command wrote something."""
        return list(self._readers)

    def copy(self, ready: list[int]) -> None:
        """Pass on what there is to read on those of `ready` that are ours."""
        for reader in ready:
            if reader not in self._readers:
                continue
            number, _ = self._readers[reader]
            try:
                data = os.read(reader, _PIECE_BYTES)
            except OSError as problem:
                # a terminal whose last writer has gone
                if problem.errno != errno.EIO:
                    raise
                data = b""
            if not data:
                self._drop(reader)
                continue
            tail = self._tails[number]
            tail += data
            if len(tail) > 2 * KEPT_BYTES:
                del tail[:-KEPT_BYTES]
            try:
                self._sink(number, data)
            except BrokenPipeError:
                # nobody reads any more, which the command is to see as it would have without us
                self._drop(reader)

    def drain(self) -> None:
        """Pass on what is left once the command has ended."""
        while ready := select.select(self.fileno_list(), [], [], 0)[0]:
            self.copy(ready)

    def resize(self) -> None:
        """Give the command's terminal the size that ours has now."""
        for reader, (_, terminal) in self._readers.items():
            if terminal is not None:
                _take_size(terminal, reader)

    def tail(self) -> str:
        """The end of what the command wrote, stdout before stderr."""
        return "".join(bytes(self._tails[number][-KEPT_BYTES:]).decode("utf-8", "replace") for number in (1, 2))

    def close(self) -> None:
        """Close what is still open."""
        for reader in list(self._readers):
            self._drop(reader)
        self.started()

    def _drop(self, reader: int) -> None:
        os.close(reader)
        del self._readers[reader]


def on_terminal() -> bool:
    """Whether a terminal's Ctrl+C reaches this process: it is in the group that the terminal listens to."""
    try:
        terminal = os.open("/dev/tty", os.O_RDWR)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def _same_terminal(one: int, other: int) -> bool:
    return os.isatty(one) and os.isatty(other) and os.ttyname(one) == os.ttyname(other)


def _terminal(like: int) -> tuple[int, int]:
    """(ours, the command's) ends of a terminal that changes nothing on the way: the real one does that once."""
    ours, theirs = pty.openpty()
    modes = termios.tcgetattr(theirs)
    modes[1] &= ~termios.OPOST
    modes[3] &= ~termios.ECHO
    termios.tcsetattr(theirs, termios.TCSANOW, modes)
    _take_size(like, ours)
    return ours, theirs


def _take_size(of: int, to: int) -> None:
    with contextlib.suppress(OSError):
        size = fcntl.ioctl(of, termios.TIOCGWINSZ, struct.pack("HHHH", 0, 0, 0, 0))
        fcntl.ioctl(to, termios.TIOCSWINSZ, size)
