"""A few x86-64 loops in executable memory: the only way to count CPU cycles without a compiler or the PMU.

Encodings follow the Intel 64 and IA-32 manual, volume 2 (REX, VEX, EVEX); the test compares them with gcc's.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Unit = Literal["adds", "fma256", "fma512", "bf16_256", "bf16_512"]

# (needed CPU flags, floating-point multiply-adds of one instruction)
UNITS: dict[Unit, tuple[frozenset[str], int]] = {
    "fma256": (frozenset({"avx2", "fma"}), 8),
    "fma512": (frozenset({"avx512f"}), 16),
    "bf16_256": (frozenset({"avx512_bf16", "avx512vl"}), 16),
    "bf16_512": (frozenset({"avx512_bf16", "avx512f"}), 32),
}
ADDS_PER_TURN = 64
# 12 accumulators hide a latency of 4 to 6 cycles at two per cycle
ACCUMULATORS = 12
FMAS_PER_TURN = 48

_RET = b"\xc3"
_ADD_RAX_RAX = b"\x48\x01\xc0"
_DEC_RDI = b"\x48\xff\xcf"
_VZEROUPPER = b"\xc5\xf8\x77"


@dataclass(slots=True)
class MachineLoop:
    """Executable memory with one loop; `run(turns)` executes it. Keeps its memory alive; closes with the process."""

    memory: mmap.mmap
    run: Callable[[int], int]


def runs_here() -> str:
    """'' if these loops can run here, otherwise the reason."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return f"no machine code for {platform.machine()}"
    return "" if platform.system() == "Linux" else f"not tried on {platform.system()}"


def load(unit: Unit) -> MachineLoop:
    """The loop of `unit` in executable memory; OSError if the system forbids such memory."""
    memory = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    memory.write(assemble(unit))
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc = ctypes.CDLL(None, use_errno=True)
    # first written, then made executable, because hardened kernels refuse memory that is both at once
    if libc.mprotect(ctypes.c_void_p(address), mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_EXEC) != 0:
        raise OSError(ctypes.get_errno(), "the system refused executable memory")
    return MachineLoop(memory, ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_uint64)(address))


def assemble(unit: Unit) -> bytes:
    """The machine code: rdi holds the number of turns; vector registers are zeroed first, so values stay finite."""
    if unit == "adds":
        return _loop(_ADD_RAX_RAX * ADDS_PER_TURN) + _RET
    body = b"".join(_multiply_add(unit, register) for register in range(ACCUMULATORS))
    clear = b"".join(_clear(register) for register in range(16))
    return clear + _loop(body * (FMAS_PER_TURN // ACCUMULATORS)) + _VZEROUPPER + _RET


def _loop(body: bytes) -> bytes:
    jump_bytes = 6
    back = -(len(body) + len(_DEC_RDI) + jump_bytes)
    return body + _DEC_RDI + b"\x0f\x85" + back.to_bytes(4, "little", signed=True)


def _clear(register: int) -> bytes:
    low = register & 7
    if register < 8:
        return bytes([0xC5, 0x81 | ((15 - register) << 3), 0xEF, 0xC0 | (low << 3) | low])
    return bytes([0xC4, 0x41, 0x01 | ((15 - register) << 3), 0xEF, 0xC0 | (low << 3) | low])


def _multiply_add(unit: Unit, register: int) -> bytes:
    """`vfmadd231ps` or `vdpbf16ps` of registers 14 and 15 into `register`."""
    high = register >= 8
    last = 0xC7 | ((register & 7) << 3)
    match unit:
        case "fma256":
            return bytes([0xC4, 0x42 if high else 0xC2, 0x0D, 0xB8, last])
        case "fma512":
            return bytes([0x62, 0x52 if high else 0xD2, 0x0D, 0x48, 0xB8, last])
        case "bf16_256":
            return bytes([0x62, 0x52 if high else 0xD2, 0x0E, 0x28, 0x52, last])
        case "bf16_512":
            return bytes([0x62, 0x52 if high else 0xD2, 0x0E, 0x48, 0x52, last])
        case "adds":
            raise ValueError("adds has no vector instruction")
