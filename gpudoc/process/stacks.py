"""Stacks of threads: each counts in full in a process with a memory limit."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# the system gives a thread 8 MiB, which do not come back when the thread ends: glibc keeps them for the next one
_LITTLE_BYTES = 1 << 18
# the size that glibc takes on x86 if the stack has no limit (`ulimit -s`)
_UNLIMITED_BYTES = 2 << 20


@contextmanager
def little_stacks(size_bytes: int = _LITTLE_BYTES) -> Iterator[None]:
    """Inside, new threads of this process get `size_bytes` of stack; a process forked inside begins with that."""
    before = threading.stack_size(size_bytes)
    try:
        yield
    finally:
        threading.stack_size(before)


def num_threads() -> int:
    """The number of this process's threads, libraries' too (`ls /proc/self/task`); 1 if the system has no list."""
    with suppress(OSError):
        return sum(1 for _ in Path("/proc/self/task").iterdir())
    return 1


def stack_bytes() -> int:
    """The stack size of a thread that a library starts (`ulimit -s`); 0 on a system without such limits."""
    if sys.platform == "win32":
        return 0
    else:
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_STACK)
        return _UNLIMITED_BYTES if soft == resource.RLIM_INFINITY else soft
