"""The one definition of running out of memory: what an exception or a message says, and of which memory."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from enum import Enum

from gpudoc.errors import GpudocError
from gpudoc.patterns import IGNORECASE, MULTILINE, Pattern


class Shortage(str, Enum):
    """Which memory ran out; a workspace is the memory that a kernel library takes for itself."""

    DEVICE = "device"
    WORKSPACE = "workspace"
    HOST = "host"
    SHM = "shm"


# the start of cudaMallocAsync's message in PyTorch; 2.9 prints only this, others add figures in the next lines
ASYNCHRONOUS = "Allocation on device"
# what the message says, the more specific first; the sources are torch 2.6 to 2.13, its libraries and the C library.
# Some codes have other causes as well (NOT_SUPPORTED, INTERNAL_ERROR): then the smallest batch fails too, and the code
# that gives up there shows the message. "failed to map segment" alone is not a sign: the loader also prints it for a
# file on a mount without the right to execute
_SIGNS: tuple[tuple[Pattern, Shortage], ...] = (
    (
        Pattern(r"(CUBLAS|CUSPARSE|CUSOLVER|HIPBLAS|CUDNN|MIOPEN)_STATUS_ALLOC_FAILED|CUFFT_ALLOC_FAILED", IGNORECASE),
        Shortage.WORKSPACE,
    ),
    (
        Pattern(r"CUBLAS_STATUS_NOT_INITIALIZED|CUDNN_STATUS_(INTERNAL_ERROR|NOT_SUPPORTED)", IGNORECASE),
        Shortage.WORKSPACE,
    ),
    (
        Pattern(r"unable to find (a valid cuDNN algorithm|an engine to execute this computation)", IGNORECASE),
        Shortage.WORKSPACE,
    ),
    (Pattern(r"could not (create|execute) a primitive|could not create a memory", IGNORECASE), Shortage.WORKSPACE),
    (Pattern(r"out of memory|\bOutOfMemoryError\b", IGNORECASE), Shortage.DEVICE),
    (Pattern(rf"{ASYNCHRONOUS}( \d+ would exceed|\s*$)", IGNORECASE | MULTILINE), Shortage.DEVICE),
    (
        Pattern(
            r"unable to (open|mmap|write).{0,400}shm|unable to allocate shared memory|shared memory \(shm\)", IGNORECASE
        ),
        Shortage.SHM,
    ),
    (Pattern(r"unable to (mmap|resize|write).{0,400}</torch_", IGNORECASE), Shortage.SHM),
    (
        Pattern(
            r"can't allocate memory|not enough memory: you tried|bad_alloc|cannot allocate memory|MemoryError",
            IGNORECASE,
        ),
        Shortage.HOST,
    ),
    (Pattern(r"Thread creation failed|can't start new thread", IGNORECASE), Shortage.HOST),
)
# exceptions that a user's own check raises, whatever their text says
OWN_CHECKS = (ValueError, TypeError, KeyError, AttributeError)


def shortage(problem: BaseException) -> Shortage | None:
    """The memory that an exception, or one that led to it, says ran out; None when it says nothing of memory.

    None for a GpudocError as well: the code that raised it has judged what led to it.
    """
    if isinstance(problem, GpudocError):
        return None
    for link in links(problem):
        found = _of_one(link)
        if found is not None:
            return found
    return None


def shortage_in(text: str) -> Shortage | None:
    """The memory that a message says ran out; None when it says nothing of memory."""
    return next((found for pattern, found in _SIGNS if pattern.search(text)), None)


def is_out_of_memory(problem: BaseException) -> bool:
    """Whether memory ran out, on the device or on the host, so that a smaller batch may help."""
    return shortage(problem) is not None


def links(problem: BaseException) -> Iterator[BaseException]:
    """The exception and those that led to it, as a traceback would show them."""
    link: BaseException | None = problem
    seen: list[BaseException] = []
    while link is not None and link not in seen:
        seen.append(link)
        yield link
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)


def shortage_told(types: Sequence[str], text: str, number: int | None) -> Shortage | None:
    """Like `shortage`, for an exception in another process: the names of its classes, its text, its errno."""
    # torch has moved its class between modules
    if "OutOfMemoryError" in types:
        return Shortage.DEVICE
    if "MemoryError" in types or ("OSError" in types and number == errno.ENOMEM):
        return Shortage.HOST
    return None if any(kind.__name__ in types for kind in OWN_CHECKS) else shortage_in(text)


def _of_one(problem: BaseException) -> Shortage | None:
    types = [kind.__name__ for kind in type(problem).__mro__]
    return shortage_told(types, str(problem), problem.errno if isinstance(problem, OSError) else None)
