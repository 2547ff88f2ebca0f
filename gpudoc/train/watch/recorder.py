"""NCCL's flight recorder of the ranks on this machine: switched on before they start, read while they hang."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from gpudoc.doctor.causes.dumps import find_apart, find_behind
from gpudoc.doctor.model import Evidence, Finding
from gpudoc.errors import GpudocError
from gpudoc.facts.readers.dumps import RankTrace, read_dump
from gpudoc.facts.readers.model import Reading

_PIPE = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"
_DUMPS = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
# a thread of PyTorch reads the pipe about once a second, then writes
_ANSWER_S = 8.0
_AGAIN_S = 0.2


def switched_on(folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that make NCCL remember its last calls and dump them on demand; existing values stay."""
    dump = environment.get(_DUMPS[0]) or environment.get(_DUMPS[1]) or str(folder / "nccl_trace_rank_")
    wanted = {
        # PyTorch 2.9 calls it TORCH_FR_BUFFER_SIZE and warns of this name, but creates the pipe only if this is set
        "TORCH_NCCL_TRACE_BUFFER_SIZE": environment.get("TORCH_FR_BUFFER_SIZE", "2000"),
        "TORCH_CPP_LOG_LEVEL": "ERROR",
        **dict.fromkeys(_DUMPS, dump),
        _PIPE: str(folder / "nccl_pipe_"),
    }
    return {**wanted, **{name: value for name, value in environment.items() if name in wanted}}


def ask(environment: Mapping[str, str], ranks: Sequence[int]) -> tuple[str, ...]:
    """The report of these ranks' recorders as sentences; empty if NCCL is not in use, or no recorder answers."""
    if _PIPE not in environment:
        return ()
    asked = [rank for rank in ranks if _wake(Path(f"{environment[_PIPE]}{rank}.pipe"))]
    begun, until = time.time() - 1, time.monotonic() + _ANSWER_S
    found: dict[int, RankTrace] = {}
    while len(found) < len(asked) and time.monotonic() < until:
        time.sleep(_AGAIN_S)
        for rank in asked:
            if rank not in found and (trace := _trace(Path(f"{environment[_DUMPS[0]]}{rank}"), begun)) is not None:
                found[rank] = replace(trace, rank=rank)
    evidence = Evidence(source="file", reading=Reading(traces=tuple(found.values())))
    findings = [item for find in (find_apart, find_behind) for item in find(evidence) if isinstance(item, Finding)]
    told = [f"{item.title}; {'; '.join(seen.value for seen in item.evidence)}" for item in findings]
    return tuple(f"NCCL's flight recorder: {sentence}" for sentence in told or _unfinished(found))


def _unfinished(traces: Mapping[int, RankTrace]) -> list[str]:
    """The first unfinished call of each rank; ranks in the same call are reported together."""
    found: dict[str, list[int]] = {}
    for rank, trace in sorted(traces.items()):
        call = next((call for call in trace.calls if call.state != "completed"), None)
        if call is not None:
            at = f" from {call.place}" if call.place else ""
            found.setdefault(f"{call.name} {call.sizes}, number {call.number}, {call.state}{at}", []).append(rank)
    return [f"rank {', '.join(map(str, ranks))} in {what}" for what, ranks in found.items()]


def _wake(pipe: Path) -> bool:
    """Ask for a dump; returns False if no rank of this user reads the pipe.

    The environment may name any path, so this never writes into a file, a link or another user's pipe.
    """
    try:
        handle = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY)
    except OSError:
        return False
    try:
        found = os.fstat(handle)
        if not stat.S_ISFIFO(found.st_mode) or found.st_uid != os.getuid():
            return False
        with contextlib.suppress(OSError):
            os.write(handle, b"1\n")
    finally:
        os.close(handle)
    return True


def _trace(place: Path, begun: float) -> RankTrace | None:
    """The dump, None until it is complete."""
    try:
        if place.stat().st_mtime < begun:
            return None
        found = read_dump(place.read_bytes(), str(place))
    except (OSError, GpudocError):
        return None
    return found if isinstance(found, RankTrace) else None
