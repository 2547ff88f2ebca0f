"""The key with which the nodes of a run sign their messages when they meet: the job file's, or one that the first
process of the step leaves in the folder that all nodes share, where no other user can read it."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from gpudoc.control_characters import escape_line
from gpudoc.errors import GpudocError
from gpudoc.patterns import Pattern
from gpudoc.process.seal import KEY, NEW_KEY, seal_here

# srun starts the processes of a step together, and NFS may show a new file a minute late
WAIT_S = 120.0
_LOOK_S = 0.2
_WHOLE, _MOST_BYTES = Pattern(r"[0-9a-f]{64}\n"), 100
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_HINT = f"in the job file, before srun: export {KEY}={NEW_KEY}"


@contextlib.contextmanager
def run_key(variables: Mapping[str, str], folder: Path, wait_s: float = WAIT_S) -> Iterator[str]:
    """The key of this SLURM step of several nodes; GpudocError if the nodes cannot agree on one in `folder`."""
    if seal_here(variables) is not None:
        yield variables[KEY]
        return
    names = ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT")
    path = folder / f".gpudoc-key-{'-'.join(variables.get(name, '0') for name in names)}"
    if variables.get("SLURM_PROCID") != "0":
        yield _wait_for(path, wait_s)
        return
    key = _make(path)
    try:
        yield key
    finally:
        with contextlib.suppress(OSError):
            path.unlink()


def _make(path: Path) -> str:
    key = secrets.token_hex(32)
    try:
        with os.fdopen(os.open(path, _NEW, 0o600), "w", encoding="ascii") as stream:
            stream.write(f"{key}\n")
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise GpudocError(
            f"{escape_line(path)}, the file for the key of this run, cannot be created: {reason}", hint=_HINT
        ) from None
    return key


def _wait_for(path: Path, wait_s: float) -> str:
    until = time.monotonic() + wait_s
    while True:
        with contextlib.suppress(OSError), os.scandir(path.parent) as names:
            # a look into the folder makes NFS ask the server again
            next(names, None)
        if (key := _read(path)) is not None:
            return key
        if time.monotonic() > until:
            raise GpudocError(
                f"the first node has left no key for this run at {escape_line(path)} within {wait_s:.0f} s; do all "
                "nodes share that folder?",
                hint=_HINT,
            )
        time.sleep(_LOOK_S)


def _read(path: Path) -> str | None:
    """The key, None while it is incomplete; GpudocError for a file that another user can read or may have written."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise GpudocError(f"{escape_line(path)} cannot be read: {problem.strerror}", hint=_HINT) from None
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
            raise GpudocError(f"{escape_line(path)} must be a file that only this user owns and can read", hint=_HINT)
        key = os.read(handle, _MOST_BYTES).decode("ascii", "replace")
    finally:
        os.close(handle)
    return key.strip() if _WHOLE.fullmatch(key) else None
