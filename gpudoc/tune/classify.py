"""How a trial ended, from an exception, a signal or what was written to stderr."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable

from gpudoc.tune.trial import End

# what the exception's text says, the more particular first; the sources are torch 2.6 to 2.13 and the C library
_SIGNS: tuple[tuple[str, End], ...] = (
    (r"CUBLAS_STATUS_(ALLOC_FAILED|NOT_INITIALIZED)|CUDNN_STATUS_(ALLOC_FAILED|INTERNAL_ERROR)", End.OOM_WORKSPACE),
    (
        r"CUDNN_STATUS_NOT_SUPPORTED|CUSOLVER_STATUS_ALLOC_FAILED|could not (create|execute) a primitive",
        End.OOM_WORKSPACE,
    ),
    (r"could not create a memory|Unable to find a valid cuDNN algorithm", End.OOM_WORKSPACE),
    (r"CUDA out of memory|CUDA error: out of memory|HIP out of memory|NCCL.*out of memory", End.OOM_DEVICE),
    (r"DataLoader worker .* (is killed by signal|exited unexpectedly)", End.WORKER_DIED),
    (r"unable to (open|mmap|write).*shm|unable to allocate shared memory|shared memory \(shm\)", End.OOM_SHM),
    (r"can't allocate memory|not enough memory: you tried|bad_alloc|Cannot allocate memory|MemoryError", End.OOM_HOST),
    (r"failed to map segment|Thread creation failed|can't start new thread", End.OOM_HOST),
    (r"invalid configuration argument|CUDA error: too many blocks", End.GRID_LIMIT),
    (r"int32|INT_MAX|canUse32BitIndexMath|integer out of range|too many elements|32-bit index", End.INDEX_LIMIT),
)


def classify_exception(problem: BaseException) -> End:
    """The end that an exception means; what says nothing of memory or limits is the user's own error."""
    names = {kind.__name__ for kind in type(problem).__mro__}
    chain = _chain(problem)
    if "OutOfMemoryError" in names:
        return End.OOM_DEVICE
    for link in chain:
        if isinstance(link, MemoryError):
            return End.OOM_HOST
        if isinstance(link, OSError) and link.errno == 12:
            return End.OOM_HOST
        end = classify_text(f"{type(link).__name__}: {link}")
        if end is not None and not isinstance(link, ValueError | TypeError | KeyError | AttributeError):
            return end
    return End.USER_ERROR


def classify_text(text: str) -> End | None:
    """The end that a message means, or None when it says nothing of memory or limits."""
    return next((end for pattern, end in _SIGNS if re.search(pattern, text)), None)


def classify_status(status: int, stderr: str, cgroup_killed: Callable[[], bool]) -> tuple[End, str]:
    """The end and a sentence for a process that ended without a word; `status` is negative for a signal."""
    if status < 0:
        name = signal.Signals(-status).name
        if -status == signal.SIGKILL:
            if cgroup_killed():
                return End.OOM_CGROUP, "the kernel killed the process: the cgroup's memory is used up"
            return End.SIGNAL, "killed from outside by SIGKILL"
        if -status == signal.SIGBUS:
            return End.OOM_SHM, "SIGBUS: shared memory (/dev/shm) is used up"
        if -status == signal.SIGABRT and classify_text(stderr) is not None:
            return classify_text(stderr) or End.SIGNAL, _last_line(stderr)
        return End.SIGNAL, f"the process died of {name}: {_last_line(stderr)}".rstrip(": ")
    found = classify_text(stderr)
    if found is not None:
        return found, _last_line(stderr)
    return End.USER_ERROR, f"the process ended with exit code {status}: {_last_line(stderr)}".rstrip(": ")


def _chain(problem: BaseException) -> list[BaseException]:
    chain = [problem]
    while (cause := chain[-1].__cause__ or chain[-1].__context__) is not None and cause not in chain:
        chain.append(cause)
    return chain


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""
