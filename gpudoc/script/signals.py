"""Signals while a user's command runs: they are passed to the command, and a second Ctrl+C ends it at once."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from types import TracebackType

from gpudoc.script.process import CommandProcess

_HANDED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
# si_code of a signal that the kernel sent for a terminal to all processes in its group
_BY_THE_KERNEL = 0x80
# `timeout` and schedulers signal a process and then its group: two signals for one request
_ONE_WISH_S = 0.3


class Signals:
    """In its `with` block, signals wait until `hand_on` takes them; `interrupts` counts Ctrl+C.

    For the main thread of a single-threaded process; enter it before the command is started.
    """

    def __init__(self, said: Callable[[str], None]) -> None:
        self._said = said
        self._last: dict[int, float] = {}
        self._before: set[int] = set()
        self.interrupts = 0
        self.handed_on: set[int] = set()

    def __enter__(self) -> Signals:
        self._before = set(signal.pthread_sigmask(signal.SIG_BLOCK, _HANDED_ON))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while signal.sigtimedwait(_HANDED_ON, 0) is not None:
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)

    def hand_on(self, kept: CommandProcess) -> None:
        """Pass on the signals since the last call, unless the terminal has done so; end all at the second Ctrl+C.

        Signals wait until the command is started.
        """
        if kept.pid is None:
            return
        while (came := signal.sigtimedwait(_HANDED_ON, 0)) is not None:
            number, now = came.si_signo, time.monotonic()
            again = now - self._last.get(number, -1.0) <= _ONE_WISH_S
            self._last[number] = now
            if again:
                continue
            if number == signal.SIGINT:
                self.interrupts += 1
                if self.interrupts == 2:
                    self._said("ended at once")
                    kept.end()
                    return
                self._said("interrupted: waiting for the command to end; Ctrl+C again ends it at once")
            if came.si_code != _BY_THE_KERNEL or kept.terms.own_session:
                kept.signal(number, group=number == signal.SIGINT)
            self.handed_on.add(number)
