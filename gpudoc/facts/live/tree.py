"""The processes of a job and what they use, from /proc; every read tolerates a process that has just ended."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import field
from pathlib import Path

from gpudoc.facts.live.calls import SYSTEM_CALLS, WAITS_ON_A_FILE
from gpudoc.facts.model import Absent, Fact
from gpudoc.facts.process import Pages, ProcessTrack
from gpudoc.frozen import dataclass
from gpudoc.process.openmp import OpenMp, openmp_of

# Windows has no sysconf: nothing is watched there, but logs are read
TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
# only at these looks: the list of a process's mappings is long, and a young process has not loaded torch yet
_ASK_FOR_OPENMP = (1, 6, 20)
# what torch calls the main thread of a loader worker
WORKER_NAME = "pt_data_worker"
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


@dataclass(frozen=True, slots=True)
class Stat:
    """The fields of /proc/PID/stat that matter here; times in seconds."""

    name: str
    state: str
    parent: int
    major_faults: int
    cpu_s: float
    num_threads: int
    started_ticks: int


def read_stat(pid: int, tid: int | None = None, root: str = "/proc") -> Stat | None:
    """One process (or thread) as the kernel describes it; None if it has ended (`cat /proc/PID/stat`)."""
    place = f"{root}/{pid}/stat" if tid is None else f"{root}/{pid}/task/{tid}/stat"
    text = read_text(place)
    if not text:
        return None
    name = text[text.find("(") + 1 : text.rfind(")")]
    rest = text[text.rfind(")") + 2 :].split()
    return Stat(
        name=name,
        state=rest[0],
        parent=int(rest[1]),
        major_faults=int(rest[9]),
        cpu_s=(int(rest[11]) + int(rest[12])) / TICKS,
        num_threads=int(rest[17]),
        started_ticks=int(rest[19]),
    )


def read_text(place: str) -> str:
    """The file's text, or "" when it cannot be read."""
    try:
        with open(place, encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - many times a second
            return file.read()
    except OSError:
        return ""


def read_words(pid: int, root: str = "/proc") -> tuple[str, ...]:
    """The command line of a process; empty for a kernel thread or a zombie."""
    return tuple(word for word in read_text(f"{root}/{pid}/cmdline").split("\0") if word)


def directory_of(pid: int) -> Fact[str]:
    """The folder in which a process works (`readlink /proc/PID/cwd`)."""
    try:
        return os.readlink(f"/proc/{pid}/cwd")  # noqa: PTH115 - the target need not exist here
    except OSError as problem:
        return Absent(f"working directory: {problem.strerror}")


def read_environment(pid: int, names: Iterable[str], root: str = "/proc") -> Mapping[str, str]:
    """Those variables in `names` that the process was started with; no others leave this function."""
    wanted = set(names)
    pairs = (entry.partition("=") for entry in read_text(f"{root}/{pid}/environ").split("\0"))
    return {name: value for name, _, value in pairs if name in wanted}


def descendants(pid: int, root: str = "/proc") -> list[int]:
    """`pid` and all its living descendants, parents first (`pstree -p PID`)."""
    found, queue = [], [pid]
    while queue:
        here = queue.pop(0)
        found.append(here)
        queue.extend(_children(here, root))
    return found


def _children(pid: int, root: str) -> list[int]:
    # the kernel lists a child under the thread that forked it, so every thread is asked
    try:
        tids = os.listdir(f"{root}/{pid}/task")  # noqa: PTH208 - many times a second
    except OSError:
        return []
    return [int(word) for tid in tids for word in read_text(f"{root}/{pid}/task/{tid}/children").split()]


@dataclass(slots=True)
class _Track:
    first: Stat
    first_s: float
    command: str
    born: bool
    environment: Mapping[str, str]
    first_main_cpu_s: float
    first_queue: tuple[float | None, float | None]
    first_io: Mapping[str, int]
    first_switches: int | None
    last: Stat
    last_s: float
    last_main_cpu_s: float
    last_queue: tuple[float | None, float | None]
    last_io: Mapping[str, int]
    last_switches: int | None
    looks: int = 0
    running: int = 0
    in_disk_wait: int = 0
    blocked: Counter[str] = field(default_factory=Counter)
    memory: list[tuple[float, int]] = field(default_factory=list)
    cpu: list[tuple[float, float]] = field(default_factory=list)
    moved: list[tuple[float, int]] = field(default_factory=list)
    wakes: list[tuple[float, int]] = field(default_factory=list)
    pages: list[Pages] = field(default_factory=list)
    gone: bool = False
    age_s: float = 0.0
    openmp: OpenMp = field(default_factory=lambda: OpenMp(None))


class TreeSampler:
    """Looks at the processes of a job; `glance` is cheap (10 Hz), `measure` reads all counters (2 Hz)."""

    def __init__(self, pid: int, root: str = "/proc") -> None:
        self.pid = pid
        self.root = root
        self._began = time.monotonic()
        self._tracks: dict[int, _Track] = {}
        self._mounts = read_mounts(read_text(f"{root}/{pid}/mounts"))

    def glance(self) -> None:
        """Count whether each main thread is running now, and what it waits for if it is not."""
        for pid, track in self._tracks.items():
            if track.gone:
                continue
            stat = read_stat(pid, pid, self.root)
            if stat is None:
                continue
            track.looks += 1
            if stat.state == "R":
                track.running += 1
                continue
            track.in_disk_wait += stat.state == "D"
            waits_for = self._waits_for(pid)
            if waits_for:
                track.blocked[waits_for] += 1

    def measure(self) -> None:
        """Read the counters of every process, including new ones since the last look."""
        now = time.monotonic() - self._began
        alive = set(descendants(self.pid, self.root))
        for pid in alive:
            self._measure_one(pid, now)
        for pid, track in self._tracks.items():
            track.gone = pid not in alive
            if not track.gone and track.openmp.runtime is None and len(track.cpu) in _ASK_FOR_OPENMP:
                track.openmp = openmp_of(pid, Path(self.root))

    def weigh(self) -> None:
        """Read the memory of each process and its own share of it; slow for a large process, so done rarely."""
        now = time.monotonic() - self._began
        for pid, track in self._tracks.items():
            if track.gone:
                continue
            text = read_text(f"{self.root}/{pid}/smaps_rollup")
            mapped, own = _field(text, "Anonymous"), _field(text, "Pss_Anon")
            if mapped is not None and own is not None:
                track.pages.append(Pages(now, mapped * 1024, own * 1024))

    def is_alive(self) -> bool:
        """Whether the job's first process still runs."""
        stat = read_stat(self.pid, root=self.root)
        return stat is not None and stat.state not in "ZX"

    def lone_trainer(self) -> int | None:
        """The process whose main thread works most; None when the job has loader workers or no such process."""
        alive = {pid: track for pid, track in self._tracks.items() if not track.gone}
        if not alive or any(track.last.name == WORKER_NAME for track in alive.values()):
            return None
        return max(alive, key=lambda pid: alive[pid].last_main_cpu_s - alive[pid].first_main_cpu_s)

    def tracks(self) -> tuple[ProcessTrack, ...]:
        """What was seen of every process that was measured at least once."""
        return tuple(_finish(pid, track) for pid, track in self._tracks.items())

    def _measure_one(self, pid: int, now: float) -> None:
        stat = read_stat(pid, root=self.root)
        main = read_stat(pid, pid, self.root)
        if stat is None or main is None or stat.state in "ZX":
            return
        queue = _queued(pid, self.root)
        io = read_io(pid, self.root)
        switches = _field(read_text(f"{self.root}/{pid}/status"), "nonvoluntary_ctxt_switches")
        track = self._tracks.get(pid)
        if track is None or track.first.started_ticks != stat.started_ticks:
            command = " ".join(read_words(pid, self.root))[:200]
            environment = read_environment(pid, ("RANK", "LOCAL_RANK", "WORLD_SIZE", *THREAD_VARIABLES), self.root)
            track = _Track(
                first=stat,
                first_s=now,
                command=command,
                born=bool(self._tracks) and now > 0.5,
                environment=environment,
                first_main_cpu_s=main.cpu_s,
                first_queue=queue,
                first_io=io,
                first_switches=switches,
                last=stat,
                last_s=now,
                last_main_cpu_s=main.cpu_s,
                last_queue=queue,
                last_io=io,
                last_switches=switches,
                age_s=max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - stat.started_ticks / TICKS),
            )
            self._tracks[pid] = track
        track.last, track.last_s, track.last_main_cpu_s = stat, now, main.cpu_s
        track.last_queue, track.last_io, track.last_switches = queue, io, switches
        track.cpu.append((now, stat.cpu_s - track.first.cpu_s))
        if "rchar" in io and "wchar" in io:
            track.moved.append((now, io["rchar"] + io["wchar"]))
        wakes = _field(read_text(f"{self.root}/{pid}/task/{pid}/status"), "voluntary_ctxt_switches")
        if wakes is not None:
            track.wakes.append((now, wakes))
        pages = read_text(f"{self.root}/{pid}/statm").split()
        if len(pages) > 2:
            track.memory.append((now, (int(pages[1]) - int(pages[2])) * PAGE))

    def _waits_for(self, pid: int) -> str:
        words = read_text(f"{self.root}/{pid}/syscall").split()
        if not words or not words[0].lstrip("-").isdecimal():
            return ""
        number = int(words[0])
        if number < 0:
            return "page fault"
        name = SYSTEM_CALLS.get(number, f"call {number}")
        if number in WAITS_ON_A_FILE and len(words) > 1:
            return f"{name} {self._file_kind(pid, int(words[1], 16))}"
        return name

    def _file_kind(self, pid: int, descriptor: int) -> str:
        try:
            place = os.readlink(f"{self.root}/{pid}/fd/{descriptor}")  # noqa: PTH115 - the target need not be a path
        except OSError:
            return "unknown"
        if not place.startswith("/"):
            return place.partition(":")[0]
        return f"file {kind_of_mount(place, self._mounts)}"


def read_mounts(text: str) -> tuple[tuple[str, str], ...]:
    """(mount point, file system) of /proc/PID/mounts, longest mount point first."""
    rows = [line.split() for line in text.splitlines()]
    return tuple(sorted(((r[1], r[2]) for r in rows if len(r) > 2), key=lambda row: -len(row[0])))


def kind_of_mount(place: str, mounts: Iterable[tuple[str, str]]) -> str:
    """The file system that holds `place`: 'ext4', 'nfs4', 'fuse.s3fs'; 'unknown' outside every mount."""
    for point, kind in mounts:
        if point == "/" or place == point or place.startswith(point.rstrip("/") + "/"):
            return kind
    return "unknown"


def _queued(pid: int, root: str) -> tuple[float | None, float | None]:
    """Seconds in which threads were ready but no CPU was free: for all threads, and for the main thread."""
    total, main = 0.0, None
    try:
        tids = os.listdir(f"{root}/{pid}/task")  # noqa: PTH208 - many times a second
    except OSError:
        return None, None
    for tid in tids:
        words = read_text(f"{root}/{pid}/task/{tid}/schedstat").split()
        if len(words) < 2:
            continue
        waited = int(words[1]) / 1e9
        total += waited
        if tid == str(pid):
            main = waited
    return (total, main) if main is not None else (None, None)


def read_io(pid: int, root: str) -> Mapping[str, int]:
    """The counters of /proc/PID/io; empty if they may not be read."""
    pairs = (line.split(":") for line in read_text(f"{root}/{pid}/io").splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2}


def _field(text: str, name: str) -> int | None:
    for line in text.splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1])
    return None


def _difference(first: float | None, last: float | None, reason: str) -> Fact[float]:
    return Absent(reason) if first is None or last is None else max(0.0, last - first)


def _counter(first: Mapping[str, int], last: Mapping[str, int], name: str) -> Fact[int]:
    if name not in first or name not in last:
        return Absent("/proc/PID/io is not readable")
    return max(0, last[name] - first[name])


def _finish(pid: int, track: _Track) -> ProcessTrack:
    no_schedstat = "no /proc/PID/schedstat"
    rank = track.environment.get("RANK", "")
    switches = _difference(track.first_switches, track.last_switches, "the system counts no context switches")
    return ProcessTrack(
        pid=pid,
        parent=track.first.parent,
        name=track.last.name,
        command=track.command,
        first_s=track.first_s,
        last_s=track.last_s,
        age_s=track.age_s,
        num_threads=track.last.num_threads,
        cpu_s=track.last.cpu_s - track.first.cpu_s,
        main_cpu_s=track.last_main_cpu_s - track.first_main_cpu_s,
        queued_s=_difference(track.first_queue[0], track.last_queue[0], no_schedstat),
        main_queued_s=_difference(track.first_queue[1], track.last_queue[1], no_schedstat),
        read_bytes=_counter(track.first_io, track.last_io, "read_bytes"),
        write_bytes=_counter(track.first_io, track.last_io, "write_bytes"),
        write_chars=_counter(track.first_io, track.last_io, "wchar"),
        major_faults=track.last.major_faults - track.first.major_faults,
        switches_involuntary=switches if isinstance(switches, Absent) else int(switches),
        looks=track.looks,
        running=track.running,
        in_disk_wait=track.in_disk_wait,
        blocked=dict(track.blocked),
        memory=tuple(track.memory),
        cpu=tuple(track.cpu),
        moved=tuple(track.moved),
        wakes=tuple(track.wakes),
        pages=tuple(track.pages),
        born_during_watch=track.born,
        died_during_watch=track.gone,
        rank=int(rank) if rank.isdecimal() else Absent("no RANK in its environment"),
        openmp=track.openmp,
        thread_settings={k: v for k, v in track.environment.items() if k in THREAD_VARIABLES},
    )
