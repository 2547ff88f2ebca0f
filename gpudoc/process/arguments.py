"""Command lines of processes to start: for another Python like this one, or without some of their options."""

from __future__ import annotations

import os
import site
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

_ROOT = str(Path(__file__).resolve().parents[2])
# how people, and commands that we print, run a module with this Python: `-m` alone searches the current folder first
AS_MODULE = ("-P", "-m") if sys.version_info >= (3, 11) else ("-m",)


def own_python(call: str) -> list[str]:
    """The command of a Python that runs `call`, with this one's module folders, never the folder it runs in."""
    found = [entry for entry in sys.path if entry]
    return [sys.executable, "-c", f"import sys; sys.path[:] = {found!r}; {call}"]


def own_module(name: str) -> list[str]:
    """The command that runs a gpudoc module as a program, with a new Python's import path; its arguments follow."""
    found = [*site.getsitepackages(), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    if sys.version_info >= (3, 11) and _ROOT in found:
        # the child finds gpudoc by itself, and its command line shows what it is
        return [sys.executable, *AS_MODULE, name]
    # the name comes first, for people who read a list of processes
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
