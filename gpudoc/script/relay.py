"""A command's output, passed through at once: a terminal stays a terminal, a pipe a pipe; the last part is kept."""

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

    A terminal here is also a terminal for the command, of the same size; if stdout and stderr are the same terminal, so
    are the command's. With `all_to_stderr` only gpudoc writes to stdout, and the command's stdout goes to stderr.
    """

    def __init__(self, sink: Sink, *, all_to_stderr: bool = False) -> None:
        self._sink = sink
        self._tails: dict[int, bytearray] = {1: bytearray(), 2: bytearray()}
        # by reader: the command's stream number, and the terminal from which the size is taken
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
        """The descriptor for the command's stdout."""
        return self._writers[1]

    @property
    def stderr(self) -> int:
        """The descriptor for the command's stderr."""
        return self._writers[2]

    def started(self) -> None:
        """Close our copies of the command's ends after its start, so that its end is seen."""
        for writer in set(self._writers.values()):
            os.close(writer)
        self._writers.clear()

    def fileno_list(self) -> list[int]:
        """The descriptors that become readable when the command wrote something."""
        return list(self._readers)

    def copy(self, ready: list[int]) -> None:
        """Pass on the available output from those descriptors in `ready` that are ours."""
        for reader in ready:
            if reader not in self._readers:
                continue
            number, _ = self._readers[reader]
            try:
                data = os.read(reader, _PIECE_BYTES)
            except OSError as problem:
                # the last writer of the terminal has gone
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
                # the reader has gone, and the command must see that as it would without gpudoc
                self._drop(reader)

    def drain(self) -> None:
        """Pass on the remaining output after the command has ended."""
        while ready := select.select(self.fileno_list(), [], [], 0)[0]:
            self.copy(ready)

    def resize(self) -> None:
        """Give the command's terminal the size that ours has now."""
        for reader, (_, terminal) in self._readers.items():
            if terminal is not None:
                _take_size(terminal, reader)

    def tail(self) -> str:
        """The end of the command's output, stdout before stderr."""
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
    """(our end, the command's end) of a terminal that leaves the output as it is: the real terminal processes it."""
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
