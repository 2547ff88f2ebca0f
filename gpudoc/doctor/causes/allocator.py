"""The allocator's out-of-memory message in every format since torch 1.5, as numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator

from gpudoc.facts.readers.model import CleanText, Line
from gpudoc.frozen import dataclass
from gpudoc.patterns import IGNORECASE, Match, Pattern
from gpudoc.process.shortage import ASYNCHRONOUS
from gpudoc.units import parse_size

_SIZE = r"(?<!\d)(\d+(?:\.\d+)?)\s*(bytes|[KMGT]i?B)"
_HEAD = Pattern(
    r"(?:(?:CUDA|HIP|XPU|MPS\s+backend)\s+out\s+of\s+memory|OutOfMemoryError|Allocation\s+on\s+device|"
    r"Tried\s+to\s+allocate)",
    IGNORECASE,
)
_REQUEST = Pattern(rf"(?:Tried\s+to\s+allocate|Requested\s*:)\s+{_SIZE}", IGNORECASE)
_TOTAL = (
    Pattern(rf"{_SIZE}\s+total\s+capacity", IGNORECASE),
    Pattern(rf"has\s+(?:a\s+)?total(?:\s+capaci?ty)?(?:\s+of)?\s+{_SIZE}", IGNORECASE),
    Pattern(rf"(?:Device\s+limit\s*:|max\s+allowed:)\s+{_SIZE}", IGNORECASE),
)
_FREE = (
    Pattern(rf"Free\s+\(according\s+to\s+CUDA\)\s*:\s+{_SIZE}", IGNORECASE),
    Pattern(rf"of\s+which\s+{_SIZE}\s+is\s+free", IGNORECASE),
    Pattern(rf"{_SIZE}\s+free\b", IGNORECASE),
)
_ALLOCATED = (
    Pattern(rf"{_SIZE}\s+already\s+allocated", IGNORECASE),
    Pattern(rf"{_SIZE}\s+is\s+allocated\s+by\s+PyTorch", IGNORECASE),
    Pattern(rf"(?:Currently\s+allocated\s*:|MPS\s+allocated:)\s+{_SIZE}", IGNORECASE),
)
_RESERVED = Pattern(rf"{_SIZE}\s+reserved\s+in\s+total\s+by\s+PyTorch\b", IGNORECASE)
# before torch 1.4 the message gave the memory held but not in use
_CACHED = Pattern(rf"{_SIZE}\s+cached\b", IGNORECASE)
_UNALLOCATED = Pattern(rf"{_SIZE}\s+is\s+reserved\s+by\s+PyTorch\s+but\s+unallocated", IGNORECASE)
_OWN = Pattern(rf"this\s+process\s+has\s+{_SIZE}\s+memory\s+in\s+use", IGNORECASE)
_OTHER = Pattern(rf"Process\s+(\d+)\s+has\s+{_SIZE}\s+memory\s+in\s+use", IGNORECASE)
_GPU = Pattern(r"(?:\bGPU|Allocation\s+on\s+device)\s+(\d+)", IGNORECASE)
# the limit of set_per_process_memory_fraction, as the asynchronous allocator writes it: 17179869184 GiB without one
_LIMIT = Pattern(rf"PyTorch\s+limit\s+\(set\s+by[^)]*\)\s*:\s+{_SIZE}", IGNORECASE)
# how many characters one message may have from its first words on
_REACH = 1_300


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfMemory:
    """One message of the allocator; sizes in bytes, None if its format does not give them.

    `limit` is the program's own limit, None if that is not less than the card's memory.
    """

    line: Line
    gpu: int | None = None
    request: int | None = None
    total: int | None = None
    limit: int | None = None
    free: int | None = None
    allocated: int | None = None
    reserved: int | None = None
    own: int | None = None
    is_asynchronous: bool = False
    others: tuple[tuple[int, int], ...] = ()

    @property
    def strangers(self) -> tuple[tuple[int, int], ...]:
        """Processes (pid, bytes) that are not this one.

        Inside a container, the message may list this very process under the number that it has outside: then its memory
        and PyTorch's allocation do not fit on the card together.
        """
        mine = self.allocated or 0
        card = self.total if self.total is not None else math.inf
        return tuple((pid, size) for pid, size in self.others if size + mine <= card)

    @property
    def unallocated(self) -> int | None:
        """Bytes that PyTorch holds but does not use: reserved minus allocated."""
        if self.reserved is None or self.allocated is None:
            return None
        return self.reserved - self.allocated

    @property
    def outside(self) -> int | None:
        """Bytes in use on the card outside this process; before torch 2.1 they include its own CUDA context."""
        if self.total is None or self.free is None:
            return None
        # a driver that does not know the value (WSL, some containers) writes 17179869184 GiB
        own = self.own if self.own is not None and self.own <= self.total else self.reserved
        if own is None and self.is_asynchronous:
            own = self.allocated
        return None if own is None else max(self.total - self.free - own, 0)


def read(text: CleanText) -> tuple[OutOfMemory, ...]:
    """Every message of the allocator in the text, in order; messages with numbers come before those without."""
    messages = list(_messages(text))
    return tuple(sorted(messages, key=lambda m: m.total is None))


def _messages(text: CleanText) -> Iterator[OutOfMemory]:
    last = -_REACH
    heads = list(text.find_all(_HEAD, most=400))
    for head in heads:
        if head.start < last + 60:
            continue
        last = head.start
        part = text.flat[head.start : head.start + _REACH]
        # a second message begins if the words come again after the first one's numbers
        again = Pattern(r"(?:CUDA|HIP)\s+out\s+of\s+memory").search(part[60:])
        part = part[: again.start() + 60] if again else part
        yield _parse(part, head.line)


def _parse(part: str, line: Line) -> OutOfMemory:
    allocated = _first(_ALLOCATED, part)
    unallocated = _bytes(_UNALLOCATED.search(part) or _CACHED.search(part))
    reserved = _bytes(_RESERVED.search(part))
    if reserved is None and allocated is not None and unallocated is not None:
        reserved = allocated + unallocated
    gpu, total, limit = _GPU.search(part), _first(_TOTAL, part), _bytes(_LIMIT.search(part))
    others = tuple((int(m[1]), _size(m[2], m[3])) for m in _OTHER.finditer(part))
    return OutOfMemory(
        line=line,
        gpu=int(gpu[1]) if gpu else None,
        request=_bytes(_REQUEST.search(part)),
        total=total,
        limit=limit if limit is not None and total is not None and limit < total else None,
        free=_first(_FREE, part),
        allocated=allocated,
        reserved=reserved,
        own=_bytes(_OWN.search(part)),
        is_asynchronous=part.startswith(ASYNCHRONOUS) or f": {ASYNCHRONOUS}" in part[:80],
        others=others,
    )


def _first(patterns: tuple[Pattern, ...], part: str) -> int | None:
    return next((_bytes(m) for p in patterns if (m := p.search(part))), None)


def _bytes(match: Match[str] | None) -> int | None:
    return None if match is None else _size(match[1], match[2])


def _size(number: str, unit: str) -> int:
    return parse_size(f"{number}{'B' if unit.lower() == 'bytes' else unit}")
