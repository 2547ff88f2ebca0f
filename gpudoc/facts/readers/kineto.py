"""Profiler traces as they are exported, read as a stream: of a trace of 500 MB only intervals are kept.

torch.profiler (Kineto) writes JSON in Chrome's format, Nsight Systems exports SQLite or lines of JSON.
"""

from __future__ import annotations

import codecs
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from gpudoc.errors import GpudocError
from gpudoc.facts.readers.genre import SQLITE, is_nsys_export
from gpudoc.facts.readers.large_file import LargeFile, blocks, open_regular
from gpudoc.patterns import Match, Pattern

if TYPE_CHECKING:
    from gpudoc.facts.readers.trace import Trace, TraceGather

_CHUNK = 4 << 20
# an event longer than this is none
_LONGEST_EVENT = 16 << 20
_HEAD = 1 << 16
# a few bytes of gzip can stand for gigabytes: a trace of N bytes, packed or not, has no more events than these
_MOST_EVENTS, _FEWEST_BYTES = 100_000, 3
# a trace is packed to a thirtieth, and never to a hundredth
_MOST_RATIO = 250
_BETWEEN, _USUAL_BLANKS = " \r\n\t,", 64
_EVENTS = Pattern(r'"traceEvents"\s*:\s*\[')
_RANK = Pattern(r'"distributedInfo"\s*:\s*\{[^{}]{0,2000}?"rank"\s*:\s*(\d{1,6})')


def read_trace(path: Path) -> Trace:
    """The trace in a file of any size; GpudocError when it holds no event of a training process."""
    from gpudoc.facts.readers.nsys import read_database, read_export
    from gpudoc.facts.readers.trace import TraceGather

    gather = TraceGather()
    try:
        handle = open_regular(path)
        data = LargeFile(handle, os.fstat(handle).st_size)
        if data[: len(SQLITE)] == SQLITE:
            return read_database(path)

        def pieces() -> Iterator[str]:
            return _pieces(blocks(data, _CHUNK), _MOST_RATIO * len(data))

        most = _MOST_EVENTS + len(data) // _FEWEST_BYTES
        if is_nsys_export(next(pieces(), "")[:_HEAD]):
            return read_export(pieces, path.name, most)
        rank, is_cut = _read_events(pieces(), gather, most)
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise GpudocError(f"cannot read {path.name}: {reason}", hint="check the path and its permissions") from problem
    return gather.trace(origin=path.name, tool="torch.profiler", rank=rank, is_cut=is_cut)


def _read_events(pieces: Iterator[str], gather: TraceGather, most: int) -> tuple[int | None, bool]:
    """The first `most` events pass to `gather`; the rank that the trace names, and whether it ends in the middle."""
    text = next(pieces, "")
    begin = _EVENTS.search(text)
    place = begin.end() if begin is not None else text.find("[") + 1
    named = _RANK.search(text[:_HEAD])
    decode = json.JSONDecoder().raw_decode
    while True:
        place = _skip(text, place)
        if len(text) - place < _CHUNK // 8:
            more = next(pieces, "")
            if more:
                text, place = text[place:] + more, 0
                continue
        if place >= len(text):
            return _number(named), True
        if text[place] == "]":
            return _number(named), False
        try:
            event, place = decode(text, place)
        except RecursionError:
            # no event is as deep: what follows is damaged
            return _number(named), True
        except ValueError:
            more = next(pieces, "")
            if not more or len(text) - place > _LONGEST_EVENT:
                return _number(named), True
            text, place = text[place:] + more, 0
            continue
        most -= 1
        if most < 0:
            return _number(named), True
        if isinstance(event, dict):
            gather.add(event)


def _pieces(blocks: Iterator[bytes], most_bytes: int) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for block in blocks:
        yield decoder.decode(block)
        most_bytes -= len(block)
        if most_bytes < 0:
            return


def _skip(text: str, place: int) -> int:
    usual = min(place + _USUAL_BLANKS, len(text))
    while place < usual and text[place] in _BETWEEN:
        place += 1
    return place if place < usual else len(text) - len(text[place:].lstrip(_BETWEEN))


def _number(found: Match[str] | None) -> int | None:
    return None if found is None else int(found[1])
