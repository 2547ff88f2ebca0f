"""Waiting for what another process or thread does; how long it takes is nowhere asserted."""

import time
from collections.abc import Callable


def wait_until(holds: Callable[[], object], *, seconds: float = 120.0) -> None:
    """Return when `holds()` is true; AssertionError when it is not within `seconds`, which only a hang needs."""
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, "it did not come about"
        time.sleep(0.02)
