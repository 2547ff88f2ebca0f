"""Command lines of processes that are started: without some of their options, or for another Python like this one."""

from __future__ import annotations

import os
import site
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

_ROOT = str(Path(__file__).resolve().parents[2])
# how people, and what is written for them, run a module with this Python: `-m` alone looks in the current folder first
AS_MODULE = ("-P", "-m") if sys.version_info >= (3, 11) else ("-m",)


def own_python(call: str) -> list[str]:
    """A Python that finds its modules where this one does, never in the folder it runs in, and runs `call`."""
    found = [entry for entry in sys.path if entry]
    return [sys.executable, "-c", f"import sys; sys.path[:] = {found!r}; {call}"]


def own_module(name: str) -> list[str]:
    """A module of gpudoc as a program, which finds its modules as a new Python does; its arguments follow."""
    found = [*site.getsitepackages(), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    if sys.version_info >= (3, 11) and _ROOT in found:
        # the child finds gpudoc by itself, and its command line tells others what it is
        return [sys.executable, *AS_MODULE, name]
    # the name first, for who reads a list of processes
    path = f"import sys; sys.path[:] = [*filter(None, sys.path), {_ROOT!r}]"
    return [sys.executable, "-c", f"it = {name!r}; {path}; import runpy; runpy.run_module(it, None, '__main__', True)"]


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
