"""Finding every process of a test by a mark in its environment, whoever its parent is now."""

from __future__ import annotations

import contextlib
import os
import pathlib
import uuid

MARK = "GPUDOC_TEST_MARK"


def marked() -> dict[str, str]:
    """This process's environment with a mark that no other test has."""
    return {**os.environ, MARK: uuid.uuid4().hex}


def alive(environment: dict[str, str]) -> list[str]:
    """The command lines of all processes with this mark that have not ended."""
    mark = f"{MARK}={environment[MARK]}".encode()
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
    # of one that has ended and was not waited for nothing can be read
    return found
