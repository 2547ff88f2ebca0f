"""Detects, look by look, that a job stands still before it was seen training: its first step will not come."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpudoc.facts.live.sources import is_library, read_lines
from gpudoc.facts.live.tree import directory_of, read_io, read_stat, read_words
from gpudoc.facts.process import Frame, Glance, ProcessTrack, Stacks, ThreadStacks, Watch
from gpudoc.frozen import dataclass

# for a job that uses no CPU and moves no bytes; a slow answer of a server or a disk rarely takes longer
STILL_S = 10.0
# for a job that computes in a single place, as an endless loop does, but also some healthy preparations
BUSY_S = 30.0
# an idle job that is asked to end is reported from this time on
TELLING_S = 4.0
STILL_CORES = 0.03
# a thread that reports the machine's load every few seconds reads less
STILL_BYTES_PER_S = 128 * 1024


@dataclass(frozen=True, slots=True)
class Look:
    """A job at one moment: the stacks of its main threads, and its CPU seconds and moved bytes since it began."""

    time_s: float
    stacks: tuple[tuple[int, tuple[Frame, ...]], ...]
    cpu_s: float
    moved_bytes: int


@dataclass(frozen=True, slots=True)
class Standstill:
    """The looks (at least one) in which a job stood in one place, up to the latest look."""

    looks: tuple[Look, ...]

    @property
    def seconds(self) -> float:
        """The observed time that it stood there."""
        return self.looks[-1].time_s - self.looks[0].time_s

    @property
    def is_idle(self) -> bool:
        """Whether it used next to no CPU and moved next to no bytes meanwhile."""
        first, last = self.looks[0], self.looks[-1]
        used, moved = last.cpu_s - first.cpu_s, last.moved_bytes - first.moved_bytes
        return used <= STILL_CORES * self.seconds and moved <= STILL_BYTES_PER_S * self.seconds

    @property
    def is_telling(self) -> bool:
        """Whether it lasted long enough to be meaningful if the job is then asked to end."""
        return self.seconds >= (TELLING_S if self.is_idle else STILL_S)

    def as_watch(self, pid: int) -> Watch:
        """The looks as a watch of the job `pid` that was interrupted at the last look."""
        first, last = self.looks[0], self.looks[-1]
        stacks = [dict(each.stacks) for each in self.looks]
        frames = tuple(dict.fromkeys(frame for each in stacks for stack in each.values() for frame in stack))
        index = {frame: place for place, frame in enumerate(frames)}
        samples = {of: tuple(tuple(index[frame] for frame in each[of]) for each in stacks) for of in stacks[-1]}
        threads = tuple(ThreadStacks(pid=of, tid=of, name="MainThread", samples=samples[of]) for of in samples)
        lines, _ = read_lines(pid, frames)
        words = " ".join(read_words(pid))
        used_s = last.cpu_s - first.cpu_s
        track = ProcessTrack(
            pid=pid,
            parent=0,
            name="",
            command=words[:200],
            first_s=0.0,
            last_s=self.seconds,
            age_s=first.time_s,
            num_threads=0,
            cpu_s=used_s,
            main_cpu_s=used_s,
            cpu=tuple((each.time_s - first.time_s, each.cpu_s - first.cpu_s) for each in self.looks),
            moved=tuple((each.time_s - first.time_s, each.moved_bytes) for each in self.looks),
        )
        rate_hz = len(self.looks) / max(self.seconds, 1e-9)
        return Watch(
            pid=pid,
            seconds=self.seconds,
            stacks=Stacks(rate_hz=rate_hz, start_s=0.0, frames=frames, threads=threads, lines=lines),
            processes=(track,),
            interrupted=True,
            command=words[:300],
            directory=directory_of(pid),
        )


class Stillness:
    """Compares each look with the first look since the job last moved.

    Without stacks, only its use of CPU and its moved bytes count: a job that computes then never stands still.
    """

    def __init__(self, still_s: float = STILL_S, *, with_stacks: bool = True) -> None:
        self._still_s = still_s
        self._with_stacks = with_stacks
        self._looks: list[Look] = []

    @property
    def seen(self) -> Standstill | None:
        """The standstill up to the last look; None before the first one."""
        return Standstill(tuple(self._looks)) if self._looks else None

    def takes(self, look: Look) -> bool:
        """Add a look, and return whether the job has stood in one place long enough to be watched as it is."""
        now = Standstill((*self._looks[:1], look))
        if not self._looks or self._moved(now):
            self._looks = [look]
            return False
        self._looks.append(look)
        return now.seconds >= (self._still_s if now.is_idle else BUSY_S)

    def _moved(self, now: Standstill) -> bool:
        if not self._with_stacks:
            return not now.is_idle
        first, last = now.looks
        # an import reads its files at the same few lines of Python's own code
        return _places(first) != _places(last) or _imports(last) or not last.stacks


def look(time_s: float, pids: Iterable[int], glances: Sequence[Glance], root: str = "/proc") -> Look:
    """The look with the stacks that were just seen, and the CPU seconds and moved bytes of the job's processes."""
    cpu, moved = 0.0, 0
    for pid in pids:
        stat = read_stat(pid, root=root)
        cpu += stat.cpu_s if stat is not None else 0.0
        counters = read_io(pid, root)
        moved += counters.get("rchar", 0) + counters.get("wchar", 0)
    return Look(time_s, tuple(sorted((g.pid, g.frames) for g in glances)), cpu, moved)


def _places(seen: Look) -> list[tuple[object, ...]]:
    """The stacks without the line in the user's own innermost function: an endless loop moves between a few lines."""
    return [(pid, frames[:-1], *_place(frames[-1])) if frames else (pid,) for pid, frames in seen.stacks]


def _place(frame: Frame) -> tuple[object, ...]:
    return (frame,) if is_library(frame.file) else (frame.file, frame.function)


def _imports(seen: Look) -> bool:
    return any("importlib" in frame.file for _, frames in seen.stacks for frame in frames)
