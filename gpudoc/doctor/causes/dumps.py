"""Compare dumps of NCCL's flight recorder between ranks, and judge snapshots of GPU memory that ran out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from gpudoc.doctor.model import Evidence, Finder, Finding, Observation, Skip, observe
from gpudoc.facts.readers.dumps import NOT_RECORDED, Collective, MemorySnapshot, RankTrace
from gpudoc.units import format_bytes

# how many of a snapshot's places that hold memory are shown
_MOST_HOLDERS = 3
_MOST_RANKS = 8


def find_behind(evidence: Evidence) -> Iterator[Finding | Skip]:
    """Ranks that never reached the collective in which the others wait, and ranks that left no dump at all."""
    for group, traces in _by_group(evidence).items():
        newest = {rank: trace.last.get(group, -1) for rank, trace in traces.items()}
        front = max(newest.values())
        behind = {rank: number for rank, number in newest.items() if number < front}
        members = {rank for trace in traces.values() for rank in trace.members.get(group, ())}
        silent = sorted(members - set(traces))
        waiting = [rank for rank in traces if rank not in behind]
        call = _call(traces[waiting[0]], group, min(behind.values()) + 1 if behind else front)
        if (not behind and not silent) or (call is not None and call.state == "completed"):
            continue
        seen = [_seen(traces[rank], f"rank {rank} waits in {_said(call, front)}") for rank in waiting[:1]]
        for rank, number in sorted(behind.items())[:_MOST_RANKS]:
            last = _call(traces[rank], group, number)
            seen.append(_seen(traces[rank], f"rank {rank} got only as far as {_said(last, number)}"))
        if silent:
            lacks = f"no dump of rank {_few(silent)}, although they belong to the group"
            seen.append(Observation("dump", lacks, "the dumps"))
        missing = _few(sorted({*behind, *silent}))
        place = f" at {call.place}" if call is not None and call.place else ""
        title = f"Rank {missing} did not come to the collective in which the others wait{place}"
        sure = 0.9 if behind else 0.6
        yield Finding(id="nccl_timeout_one_rank_busy", confidence=sure, evidence=tuple(seen), title=title)


def find_apart(evidence: Evidence) -> Iterator[Finding | Skip]:
    """A collective of a process group that is not the same call on every rank under the same number."""
    for group, traces in _by_group(evidence).items():
        calls: dict[int, dict[int, Collective]] = {}
        for rank, trace in traces.items():
            for call in trace.calls:
                if call.group == group:
                    calls.setdefault(call.number, {})[rank] = call
        for number in sorted(calls):
            what = {rank: _what(call) for rank, call in calls[number].items()}
            if len(set(what.values())) < 2:
                continue
            usual = Counter(what.values()).most_common(1)[0][0]
            odd = [rank for rank, told in what.items() if told != usual]
            like = next(rank for rank, told in what.items() if told == usual)
            shown = (like, *odd[: _MOST_RANKS - 1])
            seen = [_seen(traces[rank], f"rank {rank}: {_said(calls[number][rank], number)}") for rank in shown]
            title = f"Rank {_few(odd)} calls a different collective from rank {like}"
            yield Finding(id="collective_mismatch", confidence=0.95, evidence=tuple(seen), title=title)
            break


def find_shortage(evidence: Evidence) -> Iterator[Finding | Skip]:
    """A snapshot from the moment memory ran out: its free pieces are too small, or it is full, and its holders."""
    for snapshot in () if evidence.reading is None else evidence.reading.snapshots:
        wanted = snapshot.wanted_bytes
        if wanted is None:
            continue
        free = snapshot.reserved_bytes - snapshot.allocated_bytes
        in_pieces = free >= wanted > snapshot.largest_free_bytes
        pieces = f", no piece larger than {format_bytes(snapshot.largest_free_bytes)}" if free else ""
        told = [
            ("request", f"{format_bytes(wanted)} were asked for"),
            ("pool", f"{format_bytes(snapshot.allocated_bytes)} are allocated, {format_bytes(free)} free{pieces}"),
        ]
        if snapshot.owners:
            told.append(("owner", _owned(snapshot)))
        held = snapshot.holders if any(at != NOT_RECORDED for at, _ in snapshot.holders) else ()
        told += [("holder", f"{format_bytes(size)} held from {at}") for at, size in held[:_MOST_HOLDERS]]
        seen = [observe(fact, value, f"{snapshot.origin}, GPU {snapshot.device}") for fact, value in told]
        yield Finding(id="oom_fragmentation" if in_pieces else "oom_capacity", confidence=0.92, evidence=tuple(seen))


def _by_group(evidence: Evidence) -> Mapping[str, dict[int, RankTrace]]:
    """The traces of each process group by rank, for groups with at least two."""
    traces = () if evidence.reading is None else evidence.reading.traces
    groups: dict[str, dict[int, RankTrace]] = {}
    for number, trace in enumerate(traces):
        for group in trace.last:
            groups.setdefault(group, {})[number if trace.rank is None else trace.rank] = trace
    return {group: ranks for group, ranks in groups.items() if len(ranks) > 1}


def _owned(snapshot: MemorySnapshot) -> str:
    """The owners of the allocated memory: 'weights 4 GiB, optimizer 8 GiB, activations and all else 2 GiB'."""
    rest = max(0, snapshot.allocated_bytes - sum(size for _, size in snapshot.owners))
    named = [f"{name} {format_bytes(size)}" for name, size in snapshot.owners]
    return ", ".join([*named, f"activations and all else {format_bytes(rest)}"])


def _call(trace: RankTrace, group: str, number: int) -> Collective | None:
    found = [call for call in trace.calls if call.group == group and call.number == number]
    return found[-1] if found else None


def _what(call: Collective) -> str:
    return f"{call.name} {call.sizes}"


def _said(call: Collective | None, number: int) -> str:
    if call is None:
        return f"collective {number}"
    place = f" at {call.place}" if call.place else ""
    return f"collective {number}, {_what(call)}, {call.state}{place}"


def _seen(trace: RankTrace, value: str) -> Observation:
    return observe("collective", value, trace.origin)


def _few(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:_MOST_RANKS]))
    return shown if len(ranks) <= _MOST_RANKS else f"{shown} and {len(ranks) - _MOST_RANKS} more"


FINDERS = (
    Finder(id="nccl_timeout_one_rank_busy", find=find_behind, reads="text"),
    Finder(id="collective_mismatch", find=find_apart, reads="text"),
    Finder(id="oom_fragmentation", find=find_shortage, reads="text"),
)
