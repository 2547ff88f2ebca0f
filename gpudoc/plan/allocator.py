"""PyTorch's CUDA caching allocator as arithmetic: what a sequence of allocations reserves, and whether it fits.

Rules and constants as in c10/cuda/CUDACachingAllocator.{h,cpp} of torch 2.6 to 2.13, default options (no
max_split_size, no power-of-two rounding); `expandable` is PYTORCH_ALLOC_CONF=expandable_segments:True. A block of one
stream is not given to another. Among free blocks of one size the lowest address is taken; new segments go downwards,
as Linux places its mappings, or upwards with `rising`.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

MIN_BLOCK = 512
SMALL_SIZE = 1 << 20
SMALL_SEGMENT = 2 << 20
LARGE_SEGMENT = 20 << 20
MIN_LARGE = 10 << 20
ROUND_LARGE = 2 << 20


class OutOfMemoryError(Exception):
    """An allocation does not fit even after every free segment has been given back."""


@dataclass(slots=True, eq=False)
class _Block:
    address: int
    size: int
    small: bool
    stream: int = 0
    allocated: bool = False
    before: _Block | None = None
    after: _Block | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Replay:
    """The result of a replay: peaks in bytes, how often memory had to be given back, and whether everything fitted."""

    fits: bool
    allocated_peak_bytes: int
    reserved_peak_bytes: int
    retries: int


class CachingAllocator:
    """One device's allocator, which can reserve `limit_bytes` (None: unlimited)."""

    def __init__(self, limit_bytes: int | None = None, *, expandable: bool = False, rising: bool = False) -> None:
        self.limit_bytes = limit_bytes
        self.expandable = expandable
        self.rising = rising
        self.allocated_bytes = self.reserved_bytes = self.retries = 0
        self.allocated_peak_bytes = self.reserved_peak_bytes = 0
        # free blocks by pool: small or large, and their stream
        self._free: dict[tuple[bool, int], list[tuple[int, int]]] = {}
        self._at: dict[int, _Block] = {}
        self._reached = 0 if rising else _TOP
        self._tails: dict[bool, _Block | None] = {True: None, False: None}

    def allocate(self, size_bytes: int, stream: int = 0) -> int:
        """An address for `size_bytes`, rounded up to 512; OutOfMemoryError if nothing can be freed for it."""
        size = max(MIN_BLOCK, -(-size_bytes // MIN_BLOCK) * MIN_BLOCK)
        small = size <= SMALL_SIZE
        block = self._take(size, (small, stream)) or self._grow(size, small, stream)
        if block is None:
            self.retries += 1
            self.give_back()
            block = self._grow(size, small, stream)
        if block is None:
            raise OutOfMemoryError(f"{size} bytes with {self.reserved_bytes} reserved of {self.limit_bytes}")
        self._split(block, size)
        block.allocated = True
        self.allocated_bytes += block.size
        self.allocated_peak_bytes = max(self.allocated_peak_bytes, self.allocated_bytes)
        return block.address

    def free(self, address: int) -> None:
        """Return a block to its pool, joined with its free neighbours."""
        block = self._at[address]
        block.allocated = False
        self.allocated_bytes -= block.size
        for neighbour in (block.before, block.after):
            if neighbour is not None and not neighbour.allocated:
                self._forget(neighbour)
                block = self._join(block, neighbour)
        self._keep(block)

    def _keep(self, block: _Block) -> None:
        self._at[block.address] = block
        insort(self._free.setdefault((block.small, block.stream), []), (block.size, block.address))

    def _take(self, size: int, kind: tuple[bool, int]) -> _Block | None:
        pool = self._free.get(kind, [])
        place = bisect_left(pool, (size, -1))
        if place == len(pool):
            return None
        return self._at[pool.pop(place)[1]]

    def _split(self, block: _Block, size: int) -> None:
        rest, small = block.size - size, block.small
        if not (rest >= MIN_BLOCK if small or self.expandable else rest > SMALL_SIZE):
            return
        tail = _Block(block.address + size, rest, small, block.stream, before=block, after=block.after)
        if block.after is not None:
            block.after.before = tail
        block.after, block.size = tail, size
        self._keep(tail)
        if self._tails[small] is block:
            self._tails[small] = tail

    def _grow(self, size: int, small: bool, stream: int) -> _Block | None:
        if self.expandable:
            return self._map(size, small)
        segment = SMALL_SEGMENT if small else LARGE_SEGMENT if size < MIN_LARGE else _up(size, ROUND_LARGE)
        if not self._reserve(segment):
            return None
        self._reached += segment if self.rising else -segment
        block = _Block(self._reached - (segment if self.rising else 0), segment, small, stream)
        self._at[block.address] = block
        return block

    def _map(self, size: int, small: bool) -> _Block | None:
        unit = SMALL_SEGMENT if small else LARGE_SEGMENT
        tail = self._tails[small]
        start = _ORIGIN[small] if tail is None else tail.address + tail.size
        spare = tail.size if tail is not None and not tail.allocated else 0
        added = _up(size - spare, unit)
        if not self._reserve(added):
            return None
        block = _Block(start, added, small, before=tail)
        if tail is not None:
            tail.after = block
        if tail is not None and spare:
            self._forget(tail)
            block = self._join(block, tail)
        self._at[block.address] = block
        self._tails[small] = block
        return block

    def give_back(self) -> None:
        """Return every segment without a living block to the device, as torch.cuda.empty_cache does."""
        for pool in self._free.values():
            for _, address in list(pool):
                block = self._at[address]
                if self.expandable:
                    self._unmap(block, block.small)
                elif block.before is None and block.after is None:
                    self._forget(block)
                    self.reserved_bytes -= block.size

    def _unmap(self, block: _Block, small: bool) -> None:
        # whole pages inside the free block; only the end of the space can be mapped again in this model
        unit = SMALL_SEGMENT if small else LARGE_SEGMENT
        origin = _ORIGIN[small]
        first, last = _up(block.address - origin, unit), (block.address + block.size - origin) // unit * unit
        if last <= first or self._tails[small] is not block:
            return
        self._forget(block)
        self.reserved_bytes -= last - first
        block.size -= last - first
        if block.size:
            self._keep(block)
            return
        self._tails[small] = block.before
        if block.before is not None:
            block.before.after = None

    def _reserve(self, size: int) -> bool:
        if self.limit_bytes is not None and self.reserved_bytes + size > self.limit_bytes:
            return False
        self.reserved_bytes += size
        self.reserved_peak_bytes = max(self.reserved_peak_bytes, self.reserved_bytes)
        return True

    def _join(self, block: _Block, neighbour: _Block) -> _Block:
        left, right = (neighbour, block) if neighbour is block.before else (block, neighbour)
        for small, tail in self._tails.items():
            if tail is right:
                self._tails[small] = left
        self._at.pop(right.address, None)
        left.size += right.size
        left.after = right.after
        if right.after is not None:
            right.after.before = left
        return left

    def _forget(self, block: _Block) -> None:
        pool = self._free[block.small, block.stream]
        place = bisect_left(pool, (block.size, block.address))
        assert pool[place] == (block.size, block.address)
        pool.pop(place)
        self._at.pop(block.address, None)


# the first address of segments that go downwards
_TOP = 1 << 60
# the two address spaces of expandable segments, far apart
_ORIGIN = {True: 0, False: 1 << 50}


@dataclass(frozen=True, slots=True)
class StoryPart:
    """A piece of a story: `events` (i allocates block i, ~i frees it), the sizes of its blocks, and their streams.

    `begins_anew`: cached memory is given back before it, as torch.cuda.empty_cache does.
    """

    sizes: Sequence[int]
    events: Sequence[int]
    streams: Mapping[int, int] = field(default_factory=dict)
    begins_anew: bool = False


def replay_parts(
    parts: Iterable[StoryPart], limit_bytes: int | None = None, *, expandable: bool = False, rising: bool = False
) -> Replay:
    """Run the parts through one allocator; a later part may free blocks of an earlier one; stops if memory runs out."""
    allocator = CachingAllocator(limit_bytes, expandable=expandable, rising=rising)
    addresses: dict[int, int] = {}
    fits = True
    try:
        for part in parts:
            if part.begins_anew:
                allocator.give_back()
            for event in part.events:
                if event < 0:
                    address = addresses.pop(~event, None)
                    if address is not None:
                        allocator.free(address)
                elif part.sizes[event] > 0:
                    addresses[event] = allocator.allocate(part.sizes[event], part.streams.get(event, 0))
    except OutOfMemoryError:
        fits = False
    return Replay(
        fits=fits,
        allocated_peak_bytes=allocator.allocated_peak_bytes,
        reserved_peak_bytes=allocator.reserved_peak_bytes,
        retries=allocator.retries,
    )


def _up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
