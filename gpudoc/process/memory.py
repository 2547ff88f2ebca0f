"""The private memory of this process, and a limit on it that the kernel enforces (RLIMIT_DATA)."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# plain values take less memory than this: a fixed part in bytes, and a factor for each byte of their pickle
_PICKLE_BYTES, _PICKLE_FACTOR = 64 << 20, 64


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    """Private memory of this process in bytes, as RLIMIT_DATA counts it: now, and the most so far."""

    data_bytes: int
    peak_data_bytes: int


def read_process_memory() -> ProcessMemory:
    """What counts against RLIMIT_DATA (`grep -E 'VmData|VmPeak|VmSize' /proc/self/status`); OSError outside Linux."""
    lines = Path("/proc/self/status").read_text().splitlines()
    sizes = {
        line.partition(":")[0]: line.split()[1] for line in lines if line.startswith(("VmPeak", "VmSize", "VmData"))
    }
    if len(sizes) < 3:
        raise OSError("/proc/self/status does not show VmPeak, VmSize and VmData")
    peak, whole, data = (int(sizes[name]) * 1024 for name in ("VmPeak", "VmSize", "VmData"))
    # only the total has a recorded peak; the rest (code, stacks, shared memory) is taken at its present size
    return ProcessMemory(data, peak - (whole - data))


def limit_memory(limit_bytes: int) -> None:
    """Limit this process to `limit_bytes` of private memory; sets only the soft limit, so that it can be lifted."""
    if sys.platform != "win32":
        with contextlib.suppress(ImportError):
            import resource

            _, hard = resource.getrlimit(resource.RLIMIT_DATA)
            most = limit_bytes if hard == resource.RLIM_INFINITY else min(limit_bytes, hard)
            resource.setrlimit(resource.RLIMIT_DATA, (most, hard))


def lift_limit() -> None:
    """Raise the soft limit back to the hard one, as loader workers do: a fork inherits its parent's usage."""
    if sys.platform != "win32":
        with contextlib.suppress(ImportError, OSError, ValueError):
            import resource

            _, hard = resource.getrlimit(resource.RLIMIT_DATA)
            resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))


@contextlib.contextmanager
def memory_room(room_bytes: int) -> Iterator[None]:
    """Inside, this process gets at most `room_bytes` more private memory: MemoryError beyond.

    Nothing changes in a process that has other threads, which the limit would hit too, or that has a limit already.
    """
    if sys.platform == "win32":
        yield
    else:
        try:
            import resource
        except ImportError:
            yield
            return
        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        held = None
        if soft == resource.RLIM_INFINITY and threading.active_count() == 1:
            with contextlib.suppress(OSError):
                held = read_process_memory().data_bytes
        if held is None:
            yield
            return
        limit_memory(held + room_bytes)
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def room_for_pickle(num_bytes: int) -> contextlib.AbstractContextManager[None]:
    """Inside, a pickle of `num_bytes` gets the memory that plain values need: nine bytes may ask for gigabytes."""
    return memory_room(_PICKLE_BYTES + _PICKLE_FACTOR * num_bytes)


def room_bytes() -> int | None:
    """Bytes that this process's limit leaves above its peak so far; None if it has no limit."""
    if sys.platform != "win32":
        with contextlib.suppress(ImportError, OSError):
            import resource

            soft, _ = resource.getrlimit(resource.RLIMIT_DATA)
            return None if soft == resource.RLIM_INFINITY else soft - read_process_memory().peak_data_bytes
    return None
