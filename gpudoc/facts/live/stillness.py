"""Whether a job that was not seen training stands still, look by look: then waiting for its first step is in vain."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpudoc.facts.live.sources import is_library
from gpudoc.facts.live.tree import read_io, read_stat
from gpudoc.facts.process import Frame, Glance

# of a job that uses no CPU and moves no bytes; a slow answer of a server or a disk rarely takes longer
STILL_S = 10.0
# of one that computes in one and the same place, as an endless loop does and some healthy preparations do, too
BUSY_S = 30.0
STILL_CORES = 0.03
# a thread that reports the machine's load every few seconds reads less
STILL_BYTES_PER_S = 128 * 1024


@dataclass(frozen=True, slots=True)
class Look:
    """A job at one moment: the stacks of its main threads, CPU seconds and bytes read and written, since it began."""

    time_s: float
    stacks: tuple[tuple[int, tuple[Frame, ...]], ...]
    cpu_s: float
    moved_bytes: int


class Stillness:
    """Compares each look with the first one that showed the same stacks."""

    def __init__(self) -> None:
        self._since: Look | None = None

    def takes(self, look: Look) -> bool:
        """Take a look in; whether the job has stood in one place for so long that it is to be watched as it is."""
        first = self._since
        # an import reads its files at the same few lines of Python's own code
        if first is None or _places(first) != _places(look) or _imports(look) or not look.stacks:
            self._since = look
            return False
        seconds = look.time_s - first.time_s
        still = look.cpu_s - first.cpu_s <= STILL_CORES * seconds
        still = still and look.moved_bytes - first.moved_bytes <= STILL_BYTES_PER_S * seconds
        return seconds >= (STILL_S if still else BUSY_S)


def look(time_s: float, pids: Iterable[int], glances: Sequence[Glance], root: str = "/proc") -> Look:
    """What the processes of a job have used until now, beside the stacks that were just seen."""
    cpu, moved = 0.0, 0
    for pid in pids:
        stat = read_stat(pid, root=root)
        cpu += stat.cpu_s if stat is not None else 0.0
        counters = read_io(pid, root)
        moved += counters.get("rchar", 0) + counters.get("wchar", 0)
    return Look(time_s, tuple(sorted((g.pid, g.frames) for g in glances)), cpu, moved)


def _places(seen: Look) -> list[tuple[object, ...]]:
    """The stacks, without the line in the user's own innermost function: an endless loop goes round in a few."""
    return [(pid, frames[:-1], *_place(frames[-1])) if frames else (pid,) for pid, frames in seen.stacks]


def _place(frame: Frame) -> tuple[object, ...]:
    return (frame,) if is_library(frame.file) else (frame.file, frame.function)


def _imports(seen: Look) -> bool:
    return any("importlib" in frame.file for _, frames in seen.stacks for frame in frames)
