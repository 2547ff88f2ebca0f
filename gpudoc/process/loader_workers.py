"""What every process of ours that starts DataLoader workers does first, and what each worker does first."""

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

# sun_path of unix(7) without its last zero; multiprocessing makes pymp-XXXXXXXX/listener-XXXXXXXX in the folder
_LONGEST, _ADDED = 107, len("/pymp-XXXXXXXX/listener-XXXXXXXX")
_SHORT = ("/dev/shm", "/tmp", "/var/tmp")


def shorten_socket_paths() -> None:
    """Have multiprocessing make its sockets elsewhere when TMPDIR is too long for a socket's path.

    A worker hands its tensors over through one. Where it cannot be made, a thread of the worker prints the error, and
    the DataLoader waits for ever. To be called before workers start, which inherit the folder; where no short folder
    can be written, nothing changes.
    """
    usual = tempfile.gettempdir()
    if len(os.fsencode(usual)) + _ADDED <= _LONGEST:
        return
    folder = next((short for short in _SHORT if Path(short).is_dir() and os.access(short, os.W_OK | os.X_OK)), None)
    if folder is None:
        return
    try:
        tempfile.tempdir = folder
        # made once for this process and those that it forks, and removed when it ends
        multiprocessing.util.get_temp_dir()
    finally:
        tempfile.tempdir = usual


def start_workers(loader: Iterable[T], *, pins: bool) -> Iterator[T]:
    """The iterator of a DataLoader, which starts its workers.

    This process gets a thread for each of them that only sends indices, and has little stack here; the one that pins
    memory calls the driver and keeps its usual stack.
    """
    with nullcontext() if pins else little_stacks():
        return iter(loader)


def start_worker(_: int) -> None:
    """A DataLoader's worker_init_fn: end with the parent, and shed the memory limit and the little stacks of threads
    that were inherited.

    torch's own watch over the parent misses one that ended before the watch began.
    """
    parent = multiprocessing.parent_process()
    if parent is not None and parent.pid is not None:
        die_with_parent(parent.pid)
    lift_limit()
    threading.stack_size(0)
