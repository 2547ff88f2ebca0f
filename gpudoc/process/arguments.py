"""Command lines of processes that are started: without some of their options, or for another Python like this one."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence


def own_python(call: str) -> list[str]:
    """A Python that finds its modules where this one does, never in the folder it runs in, and runs `call`."""
    return [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}; {call}"]


def without(arguments: Sequence[str], *options: str, flags: Collection[str] = ()) -> list[str]:
    """The command line without `options`, which take a value ('--gpus 2', '--gpus=2'), and `flags`, which take none."""
    kept: list[str] = []
    words = iter(arguments)
    for word in words:
        name, equals, _ = word.partition("=")
        if name in options:
            if not equals:
                next(words, None)
        elif word not in flags:
            kept.append(word)
    return kept
