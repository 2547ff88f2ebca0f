"""Pickles that PyTorch writes about itself: what each rank's NCCL was doing, and what a GPU's memory held.

Both contain only plain values, and the unpickler here builds nothing else, because a pickle could call anything.
"""

from __future__ import annotations

import functools
import io
import pickle
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, cast

from gpudoc.errors import GpudocError
from gpudoc.frozen import dataclass
from gpudoc.patterns import Pattern
from gpudoc.process.memory import room_for_pickle

if TYPE_CHECKING:
    from gpudoc.facts.readers.clean import Data

# the holder of blocks whose origin was not recorded
NOT_RECORDED = "not recorded"
_LONGEST_WORDS, _LONGEST_LIST, _MOST_VALUES = 1_000, 400_000, 256
# at most this many entries of each list in a dump are read: a recorder holds some thousands of calls
_MOST_ENTRIES, _MOST_GROUPS = 50_000, 1_000
_RANK = Pattern(r"(?<!\d)(\d+)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """One call of the flight recorder: its number in its process group, what it was, how far it came, and where.

    `state` is 'scheduled', 'started' or 'completed'; `place` is 'train.py:42 in step', '' when it is not known.
    """

    group: str
    number: int
    name: str
    sizes: str
    state: str
    place: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTrace:
    """What one rank's NCCL recorded; `rank` is None if the dump's name does not end with it.

    `last` is the number of the newest collective that this rank reached, by process group, as far as its status says;
    `members` are the ranks of each group.
    """

    rank: int | None
    origin: str
    calls: tuple[Collective, ...]
    last: Mapping[str, int]
    members: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySnapshot:
    """What PyTorch's allocator held on one GPU, in bytes; `wanted_bytes` is the request that ran out, None without one.

    `holders` are places in the code and the bytes allocated there, largest first; `owners` are weights, gradients and
    optimizer state if `gpudoc train` wrote the snapshot.
    """

    origin: str
    device: int
    reserved_bytes: int
    allocated_bytes: int
    largest_free_bytes: int
    wanted_bytes: int | None
    device_free_bytes: int | None
    holders: tuple[tuple[str, int], ...]
    owners: tuple[tuple[str, int], ...] = ()


def read_dump(data: Data, name: str) -> RankTrace | tuple[MemorySnapshot, ...]:
    """A flight recorder's dump, or the memory of each GPU in a snapshot; GpudocError for any other pickle."""
    try:
        with room_for_pickle(len(data)):
            content = _Plain(io.BytesIO(data[:])).load()
        return _read_content(content, name)
    except GpudocError:
        raise
    except _NotPlainError as problem:
        raise GpudocError(
            f"{name} is a pickle that contains {problem}, and reading it could run code",
            hint=(
                "doctor reads dumps of NCCL's flight recorder and of torch.cuda.memory, which contain only plain values"
            ),
        ) from problem
    except Exception as problem:
        # the unpickler may raise anything on bytes that are not a pickle
        raise GpudocError(f"{name} is a damaged pickle: {problem!r}", hint="was it copied completely?") from problem


def _read_content(content: object, name: str) -> RankTrace | tuple[MemorySnapshot, ...]:
    if isinstance(content, Mapping) and "entries" in content:
        return _trace(content, name)
    if isinstance(content, Mapping) and "segments" in content:
        return tuple(_snapshots(content, name))
    raise GpudocError(
        f"{name} is a pickle, but neither a dump of NCCL's flight recorder nor a memory snapshot",
        hint="torch.cuda.memory._dump_snapshot('memory.pickle'), or TORCH_NCCL_DUMP_ON_TIMEOUT=1",
    )


class _NotPlainError(pickle.UnpicklingError):
    """Something other than numbers, text, lists and dicts."""


class _Plain(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> object:
        raise _NotPlainError(f"{module}.{name}")

    def persistent_load(self, pid: object) -> object:
        raise _NotPlainError(f"a reference to {pid!r}")


def _trace(content: Mapping[str, object], name: str) -> RankTrace:
    rank = _RANK.search(name)
    status, config = _mapping(content.get("pg_status")), _mapping(content.get("pg_config"))
    last = {}
    for group, row in islice(status.items(), _MOST_GROUPS):
        reached = [
            _number(_mapping(row).get(f"last_{kind}_collective")) for kind in ("enqueued", "started", "completed")
        ]
        last[_words(group)] = max(reached)
    members = {}
    for group, row in islice(config.items(), _MOST_GROUPS):
        members[_words(group)] = _ranks(_text(_mapping(row).get("ranks")))
    return RankTrace(
        rank=int(rank[1]) if rank else None,
        origin=name,
        calls=tuple(_calls(content)),
        last={group: number for group, number in last.items() if number >= 0},
        members={group: ranks for group, ranks in members.items() if ranks},
    )


def _calls(content: Mapping[str, object]) -> Iterator[Collective]:
    for entry in map(_mapping, _list(content.get("entries"))[-_MOST_ENTRIES:]):
        number = _number(entry.get("collective_seq_id", entry.get("seq_id")))
        if entry.get("is_p2p") or number < 0:
            continue
        group = entry.get("process_group", entry.get("pg_name"))
        yield Collective(
            # newer dumps have (name, description)
            group=_words(group[0] if isinstance(group, (list, tuple)) and group else group),
            number=number,
            name=_words(entry.get("profiling_name", "")).removeprefix("nccl:"),
            sizes=f"{_words(entry.get('input_sizes', ''))} {_words(entry.get('input_dtypes', ''))}".strip(),
            state=_words(entry.get("state", "")),
            place=_place(entry.get("frames")),
        )


def _place(frames: object) -> str:
    """The innermost frame outside of torch, as 'train.py:42 in step'."""
    for frame in map(_mapping, _list(frames)):
        file = _words(frame.get("filename", ""))
        if file.endswith(".py") and "/torch/" not in file:
            return f"{file.rpartition('/')[2]}:{_words(frame.get('line'))} in {_words(frame.get('name'))}"
    return ""


def _snapshots(content: Mapping[str, object], name: str) -> Iterator[MemorySnapshot]:
    segments = [_mapping(segment) for segment in _list(content.get("segments"))]
    traces = [_list(trace) for trace in _list(content.get("device_traces"))]
    written = _mapping(content.get("gpudoc"))
    ooms = {_number(written.get("device")): _told_by_gpudoc(written)} if written.get("wanted_bytes") else {}
    # the recorder has the exact figures
    ooms |= {device: _mapping(row) for device, trace in enumerate(traces) for row in trace if _is_oom(row)}
    for device in sorted({_number(segment.get("device", 0)) for segment in segments} | set(ooms)):
        own = [segment for segment in segments if _number(segment.get("device", 0)) == device]
        blocks = [_mapping(block) for segment in own for block in _list(segment.get("blocks"))]
        held: dict[str, int] = {}
        for block in blocks:
            if block.get("state") == "active_allocated":
                place = _place(block.get("frames")) or NOT_RECORDED
                held[place] = held.get(place, 0) + _number(block.get("size"))
        oom = ooms.get(device)
        left = -1 if oom is None else _number(oom.get("device_free", oom.get("addr")))
        yield MemorySnapshot(
            origin=name,
            device=device,
            reserved_bytes=sum(_number(segment.get("total_size")) for segment in own),
            allocated_bytes=sum(_number(segment.get("allocated_size")) for segment in own),
            largest_free_bytes=max((_number(b.get("size")) for b in blocks if b.get("state") == "inactive"), default=0),
            wanted_bytes=None if oom is None else _number(oom.get("size")),
            # the recorder stores the device's free memory in the address field
            device_free_bytes=left if left >= 0 else None,
            holders=tuple(sorted(held.items(), key=lambda row: -row[1])),
            owners=tuple(_owners(written)) if device == _number(written.get("device")) else (),
        )


def _told_by_gpudoc(written: Mapping[str, object]) -> Mapping[str, object]:
    """What `gpudoc train` read in the error, in the recorder's form."""
    return {"size": written.get("wanted_bytes"), "device_free": written.get("device_free_bytes")}


def _owners(written: Mapping[str, object]) -> Iterator[tuple[str, int]]:
    for name, size in _mapping(written.get("owners")).items():
        if _number(size) >= 0:
            yield str(name), _number(size)


def _is_oom(row: object) -> bool:
    return _mapping(row).get("action") == "oom"


def _mapping(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", value) if isinstance(value, Mapping) else {}


def _list(value: object) -> Sequence[object]:
    return value if isinstance(value, (list, tuple)) else ()


def _words(value: object) -> str:
    """A value in words, lists as Python writes them; only the first of many values, because shared lists may expand
    to far more than the dump contains."""
    return _spoken(value, [_MOST_VALUES])


def _spoken(value: object, left: list[int]) -> str:
    left[0] -= 1
    if left[0] < 0:
        return "..."
    if isinstance(value, (list, tuple)):
        parts = []
        for one in value:
            parts.append(_spoken(one, left))
            if left[0] < 0:
                break
        shown = ", ".join(parts)
        return f"[{shown}]" if isinstance(value, list) else f"({shown})"
    if isinstance(value, int) and abs(value) >= 1 << 64:
        return "a number without end"
    return str(value)[:_LONGEST_WORDS] if value is None or isinstance(value, (str, int, float)) else ""


def _text(value: object) -> str:
    return value[:_LONGEST_LIST] if isinstance(value, str) else ""


@functools.lru_cache(maxsize=64)
def _ranks(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in Pattern(r"\d{1,9}").findall(text))


def _number(value: object) -> int:
    """A whole number, -1 for anything else: both dumps count from 0 and use -1 for "nothing yet"."""
    return value if isinstance(value, int) and not isinstance(value, bool) else -1
