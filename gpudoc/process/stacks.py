"""Stacks of threads, all of which count in full where a process lives under a memory limit."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# of the system's 8 MiB none is given back when the thread is gone: glibc keeps them for the next one
_LITTLE_BYTES = 1 << 18
# what glibc takes on x86 where the stack has no limit (`ulimit -s`)
_UNLIMITED_BYTES = 2 << 20


@contextmanager
def little_stacks(size_bytes: int = _LITTLE_BYTES) -> Iterator[None]:
    """Inside, threads that this process starts get so much stack. A process that is forked inside begins with that."""
    before = threading.stack_size(size_bytes)
    try:
        yield
    finally:
        threading.stack_size(before)


def num_threads() -> int:
    """The threads of this process, those of libraries too (`ls /proc/self/task`); 1 where the system has no list."""
    with suppress(OSError):
        return sum(1 for _ in Path("/proc/self/task").iterdir())
    return 1


def stack_bytes() -> int:
    """What a thread takes that a library starts (`ulimit -s`); 0 on a system without such limits."""
    if sys.platform == "win32":
        return 0
    else:
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_STACK)
        return _UNLIMITED_BYTES if soft == resource.RLIM_INFINITY else soft
