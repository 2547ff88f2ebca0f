"""Traces of NVIDIA Nsight Systems, from the SQLite database that `nsys export --type sqlite` writes.

Tables and columns: https://docs.nvidia.com/nsight-systems/UserGuide/index.html (SQLite schema reference).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from gpudoc.errors import GpudocError
from gpudoc.facts.readers.trace import STEP, Trace, TraceGather, kind_of_work
from gpudoc.patterns import Pattern

if TYPE_CHECKING:
    import sqlite3

_KERNELS, _RUNTIME = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"
_MEMCPY, _MEMSET = "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"
_NVTX, _NAMES = "NVTX_EVENTS", "StringIds"
# CUpti_ActivityMemcpyKind and CUpti_ActivityMemoryKind
_TO_DEVICE, _PAGEABLE = 1, 0
_US = 1000.0
# what people name a range of one step
_VERSION = Pattern(r"_v\d{1,6}$")
_STEP = Pattern(r"(?i)(?:train(?:ing)?[ _]?)?(?:step|iter(?:ation)?|batch)[ _:#]{0,3}\d{1,9}")
_HINT = "nsys export --type sqlite --output trace.sqlite trace.nsys-rep"


def read_database(path: Path) -> Trace:
    """The trace in a database of nsys; GpudocError when it is another database or damaged."""
    # a look at a log must not load it
    import sqlite3

    gather = TraceGather()
    try:
        # a database that is read may not be changed, whoever owns it
        with sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True) as base:
            tables = {str(name) for (name,) in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if not tables & {_KERNELS, _RUNTIME}:
                raise GpudocError(f"{path.name} is a database, but not from Nsight Systems", hint=_HINT)
            _read(base, tables, gather)
    except (sqlite3.Error, UnicodeDecodeError) as problem:
        # sqlite3 quotes the damaged place in its message, which need not be text
        raise GpudocError(f"{path.name}: the database cannot be read: {problem}", hint=_HINT) from problem
    return gather.trace(origin=path.name, tool="Nsight Systems", rank=None, is_cut=False)


def _read(base: sqlite3.Connection, tables: set[str], gather: TraceGather) -> None:
    names: dict[object, str] = {}
    if _NAMES in tables:
        names = {number: str(text) for number, text in base.execute(f"SELECT id, value FROM {_NAMES}")}  # noqa: S608
    for start, end, (thread, called, name) in _rows(base, tables, _RUNTIME, "globalTid, correlationId, nameId"):
        # names carry the version of the call: cudaLaunchKernel_v7000
        said = _VERSION.sub("", names.get(name, ""))
        gather.add_call(thread, start, end, said, called)
    for start, end, (device, called, name) in _rows(base, tables, _KERNELS, "deviceId, correlationId, shortName"):
        said = names.get(name, "")
        gather.add_work(device, start, end, kind_of_work("kernel", said), called, said)
    for start, end, (device, called, kind, source) in _rows(
        base, tables, _MEMCPY, "deviceId, correlationId, copyKind, srcKind"
    ):
        pageable = " (Pageable -> Device)" if kind == _TO_DEVICE and source == _PAGEABLE else ""
        gather.add_work(device, start, end, "copy", called, f"Memcpy{pageable}")
    for start, end, (device, called) in _rows(base, tables, _MEMSET, "deviceId, correlationId"):
        gather.add_work(device, start, end, "copy", called, "Memset")
    for start, end, (thread, text, name) in _rows(base, tables, _NVTX, "globalTid, text, textId"):
        said = str(text or names.get(name, ""))
        said = f"{STEP}{said}" if _STEP.fullmatch(said) else said
        gather.add_op(thread, start, end, said, is_op=False)


def _rows(
    base: sqlite3.Connection, tables: set[str], table: str, columns: str
) -> Iterator[tuple[float, float, tuple[object, ...]]]:
    """Begin and end in microseconds and these columns of each row; none where the table is missing or has others."""
    if table not in tables:
        return
    import sqlite3

    try:
        rows = base.execute(f"SELECT start, end, {columns} FROM {table}")  # noqa: S608  all of it is constant
    except sqlite3.OperationalError:
        return
    for start, end, *rest in rows:
        if isinstance(start, int | float) and isinstance(end, int | float):
            yield start / _US, end / _US, tuple(rest)
