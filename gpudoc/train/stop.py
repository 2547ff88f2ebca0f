"""Ctrl+C, SIGTERM, SIGUSR1 and time limits as one flag that every phase checks at its next safe place."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from gpudoc.errors import ExitCode

_ASKS_TO_RESUME = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGUSR1", "SIGUSR2") if hasattr(signal, name))
_ASKED_FOR = (signal.SIGINT, *_ASKS_TO_RESUME)


class Stop:
    """Whether and why training should end at the next step boundary.

    `deadline` (Unix time) is converted now: later changes of the system clock do not move it.
    """

    def __init__(self, deadline: float | None = None) -> None:
        self.reason = ""
        # true from the first request on
        self.asked = False
        self.exit_code = ExitCode.OK
        self._ends_at = None if deadline is None else time.monotonic() + deadline - time.time()
        self.last_words = ""
        self._owner = os.getpid()

    def ask(self, reason: str, exit_code: ExitCode) -> None:
        """Request the stop; the first reason counts."""
        if not self.reason:
            self.reason = reason
            self.exit_code = exit_code
            self.asked = True

    def check_time(self, needed_s: float) -> None:
        """Request the stop if less than `needed_s` seconds remain before the deadline."""
        if self._ends_at is not None and time.monotonic() + needed_s > self._ends_at:
            self.ask("the time limit is near", ExitCode.RESUME)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Handle the signals inside; restores the previous handlers afterwards."""
        before = {number: signal.signal(number, self._handle) for number in _ASKED_FOR}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del frame
        if os.getpid() != self._owner:
            return
        if number != signal.SIGINT:
            self.ask(f"{signal.Signals(number).name} received", ExitCode.RESUME)
        elif self.reason == "Ctrl+C":
            os.write(2, f"\ngpudoc: stopped at once; the last good checkpoint is kept. {self.last_words}\n".encode())
            os._exit(ExitCode.INTERRUPTED)
        else:
            self.ask("Ctrl+C", ExitCode.INTERRUPTED)


@contextmanager
def defer_signals() -> Iterator[None]:
    """The context in which to start loader workers: they receive no signal before `ignore_in_worker`.

    torch gives a worker a SIGTERM handler that ends it, some milliseconds before gpudoc's is installed. The caller
    receives pending signals on leaving.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ASKED_FOR)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore_in_worker() -> None:
    """Ignore signals in a loader worker, also pending ones: the parent handles them."""
    for number in _ASKED_FOR:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ASKED_FOR)


def slurm_deadline() -> float | None:
    """When SLURM ends this job, in Unix time (`scontrol show job -o`); None outside SLURM or without a limit."""
    given = os.environ.get("SLURM_JOB_END_TIME", "")
    if given.isdecimal():
        return float(given)
    job = os.environ.get("SLURM_JOB_ID")
    if not job:
        return None
    try:
        answer = subprocess.run(["scontrol", "show", "job", "-o", job], capture_output=True, text=True, timeout=10)
        ended = next(word for word in answer.stdout.split() if word.startswith("EndTime="))
        return time.mktime(time.strptime(ended.removeprefix("EndTime="), "%Y-%m-%dT%H:%M:%S"))
    except (OSError, subprocess.SubprocessError, StopIteration, ValueError):
        return None
