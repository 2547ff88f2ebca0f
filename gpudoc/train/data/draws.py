"""The three random generators of a process, watched cheaply: was Python's, NumPy's or torch's used?

Reading all state costs 8 µs (Python), 33 µs (NumPy) and 2 µs (torch) each time; a witness (a few bytes of the
generator's state, read in place) costs a tenth of a microsecond and changes with every draw.
"""

from __future__ import annotations

import ctypes
import functools
import random
import struct
import sys
from collections.abc import Callable
from typing import NamedTuple, Protocol, cast

import torch
from torch import Tensor

PYTHON, NUMPY, TORCH = 1, 2, 4
Witness = Callable[[], object]

# torch's Mersenne Twister: {uint64 seed; int left; bool seeded; uint32 next; uint32 state[624]}, and after it one
# normal sample of each type that was drawn but not returned yet: {float, bool}, {double, bool}
_TORCH_SEED = 0x1F2E3D4C5B6A7988
_TORCH_HEAD, _TORCH_WORDS, _TORCH_NORMALS_AT, _TORCH_NORMALS = 20, 624, 2520, 24
# how far into a generator to search for its Mersenne Twister; less than the generator's size
_TORCH_REACH = 512


class _NumpyRandom(Protocol):
    def get_state(self) -> object: ...
    def set_state(self, state: object) -> None: ...
    def seed(self, seed: int) -> None: ...


class Snapshot(NamedTuple):
    """All random state of this process; `numpy` is None until NumPy is imported, `cuda` is None without a GPU."""

    python: object
    numpy: object
    torch: Tensor
    cuda: Tensor | None
    marks: tuple[object, object, object]


class Generators:
    """Takes and restores snapshots, and reports which generators moved between two moments."""

    def __init__(self, device: torch.device | None = None) -> None:
        self._device = device if device is not None and device.type == "cuda" else None
        self._python_mark = _python_witness()
        self._numpy_mark: Witness | None = None
        self._torch_mark = _torch_witness()
        self._kept: dict[int, tuple[object, object]] = {}
        self._last: Snapshot | None = None

    def snapshot(self) -> Snapshot:
        """The current state; takes about 1 µs if nothing was drawn. Only generators that moved are read again."""
        marks = self._marks()
        last = self._last
        if last is not None and last.marks == marks and self._device is None:
            return last
        self._last = last = Snapshot(
            python=self._state(PYTHON, marks[0], random.getstate),
            numpy=self._state(NUMPY, marks[1], _numpy_state),
            torch=cast(Tensor, self._state(TORCH, marks[2], torch.default_generator.get_state)),
            cuda=None if self._device is None else torch.cuda.get_rng_state(self._device),
            marks=marks,
        )
        return last

    def moved(self, since: Snapshot) -> int:
        """Bits of the generators that drew since the snapshot: PYTHON, NUMPY, TORCH."""
        now, before = self._marks(), since.marks
        if now == before:
            return 0
        return sum(bit for bit, a, b in zip((PYTHON, NUMPY, TORCH), now, before, strict=True) if a != b)

    def restore(self, snapshot: Snapshot) -> None:
        """Restore the state of all generators."""
        python_mark, numpy_mark, _ = self._marks()
        if python_mark != snapshot.marks[0]:
            random.setstate(snapshot.python)  # type: ignore[arg-type]
        if numpy_mark != snapshot.marks[1]:
            numpy = _numpy()
            if numpy is not None and snapshot.numpy is not None:
                numpy.set_state(snapshot.numpy)
        torch.default_generator.set_state(snapshot.torch)
        if self._device is not None and snapshot.cuda is not None:
            torch.cuda.set_rng_state(snapshot.cuda, self._device)

    def _marks(self) -> tuple[object, object, object]:
        numpy_mark = self._numpy_mark
        if numpy_mark is None and "numpy" in sys.modules:
            numpy_mark = self._numpy_mark = _numpy_witness()
        return self._python_mark(), None if numpy_mark is None else numpy_mark(), self._torch_mark()

    def _state(self, which: int, mark: object, read: Callable[[], object]) -> object:
        kept = self._kept.get(which)
        if kept is None or kept[0] != mark:
            kept = self._kept[which] = (mark, read())
        return kept[1]


def seed(generators: int, value: int) -> None:
    """Seed the generators in the bit set; the rest stay as they are."""
    if generators & TORCH:
        torch.default_generator.manual_seed(value)
    if generators & PYTHON:
        random.seed(value)
    if generators & NUMPY:
        numpy = _numpy()
        if numpy is not None:
            numpy.seed(value & 0xFFFFFFFF)


def seed_all(value: int) -> None:
    """Seed Python, NumPy (when imported) and torch on every device."""
    seed(PYTHON | NUMPY, value)
    torch.manual_seed(value)


# the position in the state, and two of its words: seeding always sets the first word to 2^31
def _python_witness() -> Witness:
    generator = random._inst
    return _bytes(id(generator) + object.__basicsize__, 12) if _knows_layout() else random.getstate


def _knows_layout() -> bool:
    """Whether this Python keeps {int index; uint32 state[624]} right after the object's head; tests a spare one."""
    if sys.implementation.name != "cpython":
        return False
    spare = random.Random(1)
    read = _bytes(id(spare) + object.__basicsize__, 12)
    before = struct.unpack("=3I", read())
    spare.random()
    after = struct.unpack("=3I", read())
    return bool(before[0] == 624 and after[0] == 2 and after[2] == spare.getstate()[1][1])


def _numpy_witness() -> Witness:
    import numpy as np

    generator = np.random.mtrand._rand
    # the last word of the state and the position in it
    last = 623 * 4
    try:
        spare = np.random.RandomState(1)
        read = _bytes(spare._bit_generator.ctypes.state_address + last, 8)
        before = read()
        spare.random_sample()
        if before == read():
            return _numpy_full
        return _bytes(generator._bit_generator.ctypes.state_address + last, 8)
    except (AttributeError, TypeError, ValueError):
        return _numpy_full


def _torch_witness() -> Witness:
    """A witness that reads torch's generator in place if its layout is known, else all of its state."""
    try:
        address = _place_of(torch.default_generator) + _torch_layout()
    except (AttributeError, LookupError):
        return _WholeState
    return _in_place(address)


@functools.cache
def _torch_layout() -> int:
    """The offset of the Mersenne Twister in a CPU generator, found on a spare one; LookupError if it is not found.

    It is not found either while a mode of torch keeps operators from running; later calls then search again.
    """
    spare = torch.Generator().manual_seed(_TORCH_SEED)
    known = struct.pack("=Qi?", _TORCH_SEED, 1, True)
    start = ctypes.string_at(_place_of(spare), _TORCH_REACH).find(known)
    if start < 0:
        raise LookupError
    address = _place_of(spare) + start
    # torch's format of the state: 24 bytes, then one word in every eight bytes
    state = spare.get_state()
    told = ctypes.string_at(state.data_ptr() + 24, 8 * _TORCH_WORDS)
    held = ctypes.string_at(address + _TORCH_HEAD, 4 * _TORCH_WORDS)
    if struct.unpack(f"={_TORCH_WORDS}I", held) != struct.unpack(f"={_TORCH_WORDS}Q", told):
        raise LookupError
    read = _in_place(address)
    before, _ = read()
    for kind in (torch.float32, torch.float64):
        seen = []
        # the first call draws two numbers and keeps one; the second call takes that one without drawing
        for _ in range(2):
            torch.empty((), dtype=kind, device="cpu").normal_(generator=spare)
            seen.append(read())
        (drawn, kept), (after, taken) = seen
        if drawn == before or after != drawn or taken == kept:
            raise LookupError
        before = after
    return start


def _place_of(generator: torch.Generator) -> int:
    return cast(int, generator._cdata)  # type: ignore[attr-defined]


def _in_place(address: int) -> Callable[[], tuple[object, object]]:
    """Reads the seed, the position and two words of torch's state, which determine the next 624 numbers; and the kept
    float and double. Bytes there mean nothing if no number is kept, and neither does the padding of the state.
    """
    read_state, read_normals = _bytes(address, _TORCH_HEAD + 8), _bytes(address + _TORCH_NORMALS_AT, _TORCH_NORMALS)

    def read() -> tuple[object, object]:
        held, kept = read_state(), read_normals()
        return (held[:13], held[16:]), (kept[4] and kept[:4], kept[16] and kept[8:16])

    return read


class _WholeState:
    """All of torch's state as a witness."""

    def __init__(self) -> None:
        # 632 words of eight bytes
        self._words = torch.default_generator.get_state().view(torch.int64)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _WholeState) and torch.equal(self._words, other._words)

    __hash__ = None  # type: ignore[assignment]


def _bytes(address: int, size: int) -> Callable[[], bytes]:
    # a C function, since it is called several times per step
    return memoryview((ctypes.c_char * size).from_address(address)).tobytes


def _numpy() -> _NumpyRandom | None:
    module = sys.modules.get("numpy")
    return None if module is None else cast(_NumpyRandom, module.random)


def _numpy_state() -> object:
    numpy = _numpy()
    return None if numpy is None else numpy.get_state()


def _numpy_full() -> object:
    name, keys, *rest = cast("tuple[str, object, int]", _numpy_state())
    return name, bytes(memoryview(keys)), *rest  # type: ignore[arg-type]
