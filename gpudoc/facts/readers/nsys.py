"""Traces of NVIDIA Nsight Systems, as `nsys export --type sqlite` or `--type json` writes them.

Tables and columns: https://docs.nvidia.com/nsight-systems/UserGuide/index.html (SQLite schema reference). The JSON has
an event on each line, and all strings on one line or on a line each, before or after the events:
https://docs.nvidia.com/drive/drive-os-5.2.3.0L/nsight-systems/nsys-exporter/json_text_format.html. NVIDIA does not
describe the fields of its events; they are the columns of the database under other names.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
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
_VERSION = Pattern(r"_v\d{1,6}$")
# what people name a range of one step
_STEP = Pattern(r"(?i)(?:train(?:ing)?[ _]?)?(?:step|iter(?:ation)?|batch)[ _:#]{0,3}\d{1,9}")
# torch.autograd.profiler.emit_nvtx adds them to an operator's name
_EMITTED = Pattern(r", (?:seq|op_id) = \d{1,20}(?:, .*)?$")
_HINT = "nsys export --type sqlite --output trace.sqlite trace.nsys-rep"
_STRINGS, _STRING = '{"data"', '{"type"'
# all strings stand on one line
_LONGEST_LINE = 64 << 20
_LONGEST_NUMBER = 20


def read_database(path: Path) -> Trace:
    """The trace in a database of nsys; GpudocError if it is another database or damaged."""
    # reading a log must not load it
    import sqlite3

    gather = TraceGather()
    try:
        # reading must not change the database, even if this user could
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
        _add_call(gather, thread, start, end, names.get(name, ""), called)
    for start, end, (device, called, name) in _rows(base, tables, _KERNELS, "deviceId, correlationId, shortName"):
        said = names.get(name, "")
        gather.add_work(device, start, end, kind_of_work("kernel", said), called, said)
    for start, end, (device, called, kind, source) in _rows(
        base, tables, _MEMCPY, "deviceId, correlationId, copyKind, srcKind"
    ):
        gather.add_work(device, start, end, "copy", called, _copy_name(kind, source))
    for start, end, (device, called) in _rows(base, tables, _MEMSET, "deviceId, correlationId"):
        gather.add_work(device, start, end, "copy", called, "Memset")
    for start, end, (thread, text, name) in _rows(base, tables, _NVTX, "globalTid, text, textId"):
        _add_range(gather, thread, start, end, str(text or names.get(name, "")))


def _add_call(gather: TraceGather, thread: object, start: float, end: float, name: str, called: object) -> None:
    # names carry the version of the call: cudaLaunchKernel_v7000
    gather.add_call(thread, start, end, _VERSION.sub("", name), called)


def _copy_name(kind: object, source: object) -> str:
    return "Memcpy (Pageable -> Device)" if kind == _TO_DEVICE and source == _PAGEABLE else "Memcpy"


def _add_range(gather: TraceGather, thread: object, start: float, end: float, text: str) -> None:
    name = _EMITTED.sub("", text)
    gather.add_op(thread, start, end, f"{STEP}{text}" if _STEP.fullmatch(text) else name, is_op=name != text)


def _rows(
    base: sqlite3.Connection, tables: set[str], table: str, columns: str
) -> Iterator[tuple[float, float, tuple[object, ...]]]:
    """Begin and end in microseconds and these columns of each row; none if the table is missing or has others."""
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


def read_export(pieces: Callable[[], Iterator[str]], origin: str, most: int) -> Trace:
    """The trace in the pieces of a JSON export, of which the first `most` lines count; GpudocError if it has no work.

    `pieces` begins at the first piece each time: the strings, which may come last, are read before the events.
    """
    gather = TraceGather()
    names: dict[int, str] = {}
    for line in _lines(pieces(), most):
        if line.startswith((_STRINGS, _STRING)):
            _take_names(_parsed(line), names)
    parsed: Mapping[str, object] | None = {}
    for line in _lines(pieces(), most):
        if not line.startswith((_STRINGS, _STRING)) and not line.isspace():
            parsed = _parsed(line)
            _take_event(parsed, names, gather)
    # an export without strings, or with half a line at its end, was cut off
    return gather.trace(origin=origin, tool="Nsight Systems", rank=None, is_cut=parsed is None or not names)


def _lines(pieces: Iterator[str], most: int) -> Iterator[str]:
    rest = ""
    for piece in pieces:
        *lines, rest = (rest + piece).split("\n")
        for line in lines:
            most -= 1
            if most < 0:
                return
            yield line
        if len(rest) > _LONGEST_LINE:
            return
    if rest:
        yield rest


def _parsed(line: str) -> Mapping[str, object] | None:
    """The object on a line; None if it is damaged or another value."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _take_names(found: Mapping[str, object] | None, names: dict[int, str]) -> None:
    match found:
        case {"data": list(texts)}:
            names.update((number, str(text)) for number, text in enumerate(texts))
        case {"type": "String", "id": place, "value": str(text)} if (number := _number(place)) is not None:
            names[number] = text


def _take_event(found: Mapping[str, object] | None, names: Mapping[int, str], gather: TraceGather) -> None:
    match found:
        case {"TraceProcessEvent": {"startNs": start, "endNs": end, "globalTid": thread, **more}}:
            if (span := _span(start, end)) is not None:
                _add_call(gather, thread, *span, _name(more.get("name"), names), _number(more.get("correlationId")))
        case {"CudaEvent": dict(event)}:
            _take_work(event, names, gather)
        case {"NvtxEvent": {"Timestamp": start, "EndTimestamp": end, "GlobalTid": thread, **more}}:
            if (span := _span(start, end)) is not None:
                _add_range(gather, thread, *span, str(more.get("Text") or _name(more.get("TextId"), names)))


def _take_work(event: Mapping[str, object], names: Mapping[int, str], gather: TraceGather) -> None:
    span = _span(event.get("startNs"), event.get("endNs"))
    if span is None:
        return
    device, called = _number(event.get("deviceId")), _number(event.get("correlationId"))
    match event:
        case {"kernel": dict(kernel)}:
            name = _name(kernel.get("shortName"), names)
            gather.add_work(device, *span, kind_of_work("kernel", name), called, name)
        case {"memcpy": dict(copy)}:
            name = _copy_name(_number(copy.get("copyKind")), _number(copy.get("srcKind")))
            gather.add_work(device, *span, "copy", called, name)
        case {"memset": dict()}:
            gather.add_work(device, *span, "copy", called, "Memset")


def _span(start: object, end: object) -> tuple[float, float] | None:
    """Begin and end in microseconds."""
    begin_ns, end_ns = _number(start), _number(end)
    return None if begin_ns is None or end_ns is None else (begin_ns / _US, max(begin_ns, end_ns) / _US)


def _name(number: object, names: Mapping[int, str]) -> str:
    place = _number(number)
    return "" if place is None else names.get(place, "")


def _number(value: object) -> int | None:
    """A whole number as it is, or as the text that protobuf writes for one of 64 bits."""
    if isinstance(value, str) and len(value) <= _LONGEST_NUMBER and value.isdecimal():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 64 else None
