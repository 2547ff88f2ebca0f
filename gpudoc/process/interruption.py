"""Treats the request to end from a scheduler or a lost terminal like Ctrl+C."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def terminating_like_ctrl_c() -> Iterator[None]:
    """Inside, the first SIGTERM or SIGHUP raises KeyboardInterrupt; later ones are ignored, so that writing can finish.

    A SIGHUP that was ignored before, as under nohup, stays ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        # only the main thread may set signal handlers
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        del number, frame
        for one in before:
            signal.signal(one, signal.SIG_IGN)
        _let_go_of_lost_terminal()
        raise KeyboardInterrupt

    numbers = (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM))
    before = {number: signal.getsignal(number) for number in numbers}
    for number, handler in before.items():
        if handler != signal.SIG_IGN:
            signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _let_go_of_lost_terminal() -> None:
    """Discard further output to a terminal that is gone, instead of failing on it."""
    for stream in (1, 2):
        try:
            os.write(stream, b"")
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream)
            os.close(nowhere)
