"""Read speed of a data folder, cold and warm: the state of the kernel's page cache is read, not assumed."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import itertools
import mmap
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gpudoc.bench.model import Case, RawReading
from gpudoc.bench.sampling import Bench, Row, sample_point
from gpudoc.units import MIB

MAX_FILES = 4000
MAX_BYTES = 1024 * MIB
MAX_BYTES_QUICK = 128 * MIB
BLOCK_BYTES = MIB
# a read is not called cold if more than this share of pages is still in memory after eviction
COLD_SHARE = 0.02


def find_files(folder: Path, max_bytes: int) -> list[Path]:
    """Readable, non-empty regular files below `folder` in name order, up to `max_bytes` and MAX_FILES in all."""
    found: list[Path] = []
    total = 0
    # the first file is always taken, however large, because reading stops by time
    for path in sorted(itertools.islice((p for p in folder.rglob("*") if p.is_file()), 20 * MAX_FILES)):
        if total >= max_bytes or len(found) >= MAX_FILES:
            break
        if os.access(path, os.R_OK) and path.stat().st_size:
            found.append(path)
            total += path.stat().st_size
    return found


def evict(files: Sequence[Path]) -> None:
    """Ask the kernel to drop the pages of `files` (dirty pages stay; file systems in memory cannot)."""
    for path in files:
        with contextlib.suppress(OSError), path.open("rb") as handle:
            os.fsync(handle.fileno())
            os.posix_fadvise(handle.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def resident_share(files: Sequence[Path]) -> float | None:
    """The share of the files' pages in the page cache (`fincore FILE`), 0 to 1; None if mincore fails."""
    libc = ctypes.CDLL(None, use_errno=True)
    pages = resident = 0
    for path in files[:200]:
        size = path.stat().st_size
        with path.open("rb") as handle, mmap.mmap(handle.fileno(), size, flags=mmap.MAP_PRIVATE) as memory:
            count = -(-size // mmap.PAGESIZE)
            vector = (ctypes.c_ubyte * count)()
            start = ctypes.c_char.from_buffer(memory)
            failed = libc.mincore(ctypes.c_void_p(ctypes.addressof(start)), ctypes.c_size_t(size), vector) != 0
            del start  # the map cannot close while something points into it
        if failed:
            return None
        pages += count
        resident += sum(byte & 1 for byte in vector)
    return resident / pages if pages else None


def read_gb_per_s(files: Sequence[Path], threads: int, limit_s: float) -> float:
    """GB/s of reading `files` with `threads` readers, each a file at a time, for at most `limit_s` seconds."""
    queue = iter(files)
    started = time.perf_counter()

    def work() -> int:
        count = 0
        buffer = bytearray(BLOCK_BYTES)
        while time.perf_counter() - started < limit_s and (path := next(queue, None)) is not None:
            with path.open("rb", buffering=0) as handle:
                while (got := handle.readinto(buffer)) and time.perf_counter() - started < limit_s:
                    count += got
        return count

    with ThreadPoolExecutor(threads) as pool:
        total = sum(pool.map(lambda _: work(), range(threads)))
    return total / (time.perf_counter() - started) / 1e9


def run(bench: Bench) -> Iterator[RawReading]:
    """Rows folder_read in GB/s, cache=cold and warm; cache=unknown if the kernel keeps pages that it should drop."""
    files = find_files(Path(bench.plan.data), MAX_BYTES_QUICK if bench.plan.quick else MAX_BYTES)
    seconds = bench.point_s(2)
    threads = max(1, bench.plan.threads)
    evict(files)
    left = resident_share(files)
    state = "unknown" if left is None or left > COLD_SHARE else "cold"
    pass_s = max(0.05, seconds / 8)
    yield _measure(bench, state, threads, seconds, _cold(files, threads, pass_s), {"resident_share": left})
    read_gb_per_s(files, threads, seconds)
    warm = _warm(files, threads, pass_s)
    yield _measure(bench, "warm", threads, seconds, warm, {"resident_share": resident_share(files)})


def _measure(
    bench: Bench, state: str, threads: int, seconds: float, once: Callable[[], float], context: dict[str, float | None]
) -> RawReading:
    row = Row(name="folder_read", unit="GB/s", parameters={"cache": state, "threads": threads})
    reading = sample_point(bench, row, once, seconds)
    known = {name: value for name, value in context.items() if value is not None}
    return dataclasses.replace(reading, context={**reading.context, **known})


def _cold(files: Sequence[Path], threads: int, pass_s: float) -> Callable[[], float]:
    def once() -> float:
        evict(files)
        return read_gb_per_s(files, threads, pass_s)

    return once


def _warm(files: Sequence[Path], threads: int, pass_s: float) -> Callable[[], float]:
    return lambda: read_gb_per_s(files, threads, pass_s)


def _absent_because(bench: Bench) -> str:
    if not bench.plan.data:
        return "no folder was named (--data DIR)"
    return "" if find_files(Path(bench.plan.data), 1) else f"no readable file in {Path(bench.plan.data).name}"


CASE = Case(
    name="folder",
    meaning="read speed of a data folder",
    share=1.5,
    absent_because=_absent_because,
    run=run,
    rows={
        "folder_read": (
            "Reads the files under `--data`, first with the page cache emptied (`cold`), then again (`warm`). "
            "`unknown` is a read that may have come partly from memory. Cold is the speed of the first epoch."
        ),
    },
)
