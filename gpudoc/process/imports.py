"""Imports of much code at once, as of torch, take a third less time while nobody looks for garbage."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from gpudoc.errors import GpudocError

ASK_DOCTOR = "gpudoc doctor names the cause and the fix"
_LONGEST_IMPORT_S = 120.0


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


def refuse_broken_torch() -> None:
    """GpudocError where this Python cannot import torch; asked after something failed, in a separate process.

    The import may raise or kill the process. One that takes very long is not called broken.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-c", "import torch"],
            stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=_LONGEST_IMPORT_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return
    if done.returncode == 0:
        return
    last = next(reversed(done.stderr.decode("utf-8", "replace").strip().splitlines()), "")
    # of one that was killed the last line is a frame, and says nothing
    from gpudoc.process.ending import how_it_ended

    raise GpudocError(torch_fails(last if done.returncode > 0 else how_it_ended(done.returncode)), hint=ASK_DOCTOR)


def torch_fails(why: str) -> str:
    """What is wrong where torch cannot be imported."""
    return f"torch cannot be imported by {sys.executable}: {why}"
