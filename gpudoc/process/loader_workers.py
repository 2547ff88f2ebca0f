"""The first steps of each of our processes that starts DataLoader workers, and of each worker."""

from __future__ import annotations

import multiprocessing.util
import os
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TypeVar

from gpudoc.process.lifetime import die_with_parent
from gpudoc.process.memory import lift_limit
from gpudoc.process.stacks import little_stacks

T = TypeVar("T")

# sun_path of unix(7) without its final zero; multiprocessing makes pymp-XXXXXXXX/listener-XXXXXXXX in the folder
_LONGEST, _ADDED = 107, len("/pymp-XXXXXXXX/listener-XXXXXXXX")
_SHORT = ("/dev/shm", "/tmp", "/var/tmp")


def shorten_socket_paths() -> None:
    """Make multiprocessing create its sockets elsewhere if TMPDIR is too long for a socket's path.

    A worker hands over its tensors through a socket. If it cannot create one, a thread of the worker prints the error,
    and the DataLoader waits for ever. Call this before workers start, since they inherit the folder; it changes nothing
    if no short folder is writable.
    """
    usual = tempfile.gettempdir()
    if len(os.fsencode(usual)) + _ADDED <= _LONGEST:
        return
    folder = next((short for short in _SHORT if Path(short).is_dir() and os.access(short, os.W_OK | os.X_OK)), None)
    if folder is None:
        return
    try:
        tempfile.tempdir = folder
        # created once for this process and its forks, and removed when this process ends
        multiprocessing.util.get_temp_dir()
    finally:
        tempfile.tempdir = usual


def start_workers(loader: Iterable[T], *, pins: bool) -> Iterator[T]:
    """The iterator of a DataLoader, which starts its workers.

    For each worker, this process gets a thread that only sends indices, so it gets little stack here; the thread that
    pins memory calls the driver and keeps its usual stack.
    """
    with nullcontext() if pins else little_stacks():
        return iter(loader)


def start_worker(_: int) -> None:
    """A DataLoader's worker_init_fn: end with the parent, and drop the inherited memory limit and small thread stacks.

    torch's own watch misses a parent that ended before the watch began.
    """
    parent = multiprocessing.parent_process()
    if parent is not None and parent.pid is not None:
        die_with_parent(parent.pid)
    lift_limit()
    threading.stack_size(0)
