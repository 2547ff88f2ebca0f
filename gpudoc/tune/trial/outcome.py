"""How a trial ended, from an exception, a signal or the text on stderr."""

from __future__ import annotations

import signal
from collections.abc import Callable

from gpudoc.patterns import Pattern
from gpudoc.process.ending import how_it_ended
from gpudoc.process.shortage import OWN_CHECKS, Shortage, links, shortage, shortage_in
from gpudoc.tune.trial.messages import End

_MEMORY = {
    Shortage.DEVICE: End.OOM_DEVICE,
    Shortage.WORKSPACE: End.OOM_WORKSPACE,
    Shortage.HOST: End.OOM_HOST,
    Shortage.SHM: End.OOM_SHM,
}
# messages about problems other than a lack of memory; the sources are torch 2.6 to 2.13
_SIGNS: tuple[tuple[Pattern, End], ...] = (
    (Pattern(r"DataLoader worker .{0,400} (is killed by signal|exited unexpectedly)"), End.WORKER_DIED),
    (Pattern(r"invalid configuration argument|CUDA error: too many blocks"), End.GRID_LIMIT),
    (
        Pattern(r"int32|INT_MAX|canUse32BitIndexMath|integer out of range|too many elements|32-bit index"),
        End.INDEX_LIMIT,
    ),
)


def classify_exception(problem: BaseException) -> End:
    """The end that an exception means; it is the user's own error if it does not mention memory or limits."""
    lacking = shortage(problem)
    if lacking is not None:
        return _MEMORY[lacking]
    ends = (_of_message(str(link)) for link in links(problem) if not isinstance(link, OWN_CHECKS))
    return next((end for end in ends if end is not None), End.USER_ERROR)


def classify_text(text: str) -> End | None:
    """The end that a message means, or None if it does not mention memory or limits."""
    lacking = shortage_in(text)
    return _of_message(text) if lacking is None else _MEMORY[lacking]


def classify_status(status: int, stderr: str, cgroup_killed: Callable[[], bool]) -> tuple[End, str]:
    """The end and a sentence for a process that ended without an event; `status` is negative for a signal."""
    if status < 0:
        if -status == signal.SIGKILL:
            if cgroup_killed():
                return End.OOM_CGROUP, "the kernel killed the process because the cgroup ran out of memory"
            return End.SIGNAL, "killed from outside by SIGKILL"
        if -status == signal.SIGBUS:
            return End.OOM_SHM, "SIGBUS: shared memory (/dev/shm) is used up"
        if -status == signal.SIGABRT and classify_text(stderr) is not None:
            return classify_text(stderr) or End.SIGNAL, _last_line(stderr)
        return End.SIGNAL, f"the process {how_it_ended(status)}: {_last_line(stderr)}".rstrip(": ")
    found = classify_text(stderr)
    if found is not None:
        return found, _last_line(stderr)
    return End.USER_ERROR, f"the process {how_it_ended(status)}: {_last_line(stderr)}".rstrip(": ")


def _of_message(text: str) -> End | None:
    return next((end for pattern, end in _SIGNS if pattern.search(text)), None)


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""
