"""Whether a job that was not seen training stands still, look by look: then waiting for its first step is in vain."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpudoc.facts.live.sources import is_library, read_lines
from gpudoc.facts.live.tree import directory_of, read_io, read_stat, read_words
from gpudoc.facts.process import Frame, Glance, ProcessTrack, Stacks, ThreadStacks, Watch
from gpudoc.frozen import dataclass

# of a job that uses no CPU and moves no bytes; a slow answer of a server or a disk rarely takes longer
STILL_S = 10.0
# of one that computes in one and the same place, as an endless loop does and some healthy preparations do, too
BUSY_S = 30.0
# a job that is asked to end while it uses nothing is named from here on
TELLING_S = 4.0
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


@dataclass(frozen=True, slots=True)
class Standstill:
    """The looks, one at least, in which a job stood in one place, up to the last that was taken."""

    looks: tuple[Look, ...]

    @property
    def seconds(self) -> float:
        """How long it stood there, as far as it was seen."""
        return self.looks[-1].time_s - self.looks[0].time_s

    @property
    def is_idle(self) -> bool:
        """Whether it used next to no CPU and moved next to no bytes meanwhile."""
        first, last = self.looks[0], self.looks[-1]
        used, moved = last.cpu_s - first.cpu_s, last.moved_bytes - first.moved_bytes
        return used <= STILL_CORES * self.seconds and moved <= STILL_BYTES_PER_S * self.seconds

    @property
    def is_telling(self) -> bool:
        """Whether it lasted so long that it means something when the job is then asked to end."""
        return self.seconds >= (TELLING_S if self.is_idle else STILL_S)

    def as_watch(self, pid: int) -> Watch:
        """What the looks showed, as a watch of the job of `pid` that was interrupted at the last one."""
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
    """Compares each look with the first one since which the job has stood in one place.

    Without stacks only what it uses tells: then a job that computes never stands still.
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
        """Take a look in; whether the job has stood in one place for so long that it is to be watched as it is."""
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
    """What the processes of a job have used until now, at the time of the stacks that were just seen."""
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
