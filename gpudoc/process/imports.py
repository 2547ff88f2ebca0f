"""Imports of much code at once, as of torch, take a third less time while nobody looks for garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """No garbage collection inside, and what is there by then is never looked through again: nearly all of it stays.

    For imports alone, before anything of the user's is there: its garbage would stay as well.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.freeze()
            gc.enable()
