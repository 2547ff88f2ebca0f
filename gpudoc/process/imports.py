"""Makes large imports, such as that of torch, take a third less time, without garbage collection."""

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
    """Inside, no garbage is collected; later collections skip all objects made by then, since nearly all of them stay.

    Only for imports, before any of the user's objects exist: their garbage would stay as well.
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
    """Raise GpudocError if this Python cannot import torch; tried in a separate process, after something failed.

    The import may raise or kill the process. An import that takes very long does not count as broken.
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
    # if the process was killed, its last line is a stack frame, which says nothing
    from gpudoc.process.ending import how_it_ended

    raise GpudocError(torch_fails(last if done.returncode > 0 else how_it_ended(done.returncode)), hint=ASK_DOCTOR)


def torch_fails(why: str) -> str:
    """The message for a torch that cannot be imported."""
    return f"torch cannot be imported by {sys.executable}: {why}"
