"""A watch as shares of time: the work of each rank and each loader worker, and the job's use of the machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise

from gpudoc.doctor.live.interpreter_lock import settle
from gpudoc.doctor.live.phases import COMPUTE, TRAINING, Phase, Sighting, classify, own_line
from gpudoc.facts.live.tree import WORKER_NAME
from gpudoc.facts.model import Absent, known_or
from gpudoc.facts.process import Frame, Limits, ProcessTrack, Stacks, ThreadStacks, Watch
from gpudoc.frozen import dataclass
from gpudoc.patterns import Pattern

_IDLE, _FETCH, _PUT, _BEGIN = "idle", "fetch", "put", "begin"
# half a second of training is too little to judge
FEWEST_SAMPLES = 15
# calls by which a worker reads its data; `poll` and `read pipe` are not here, since it waits for work in them
_STORAGE_CALLS = ("openat", "open", "stat", "newfstatat", "statx", "page fault")


@dataclass(frozen=True, slots=True)
class Site:
    """A line of the user's code and the share of a thread's time that was spent under it."""

    frame: Frame
    share: float
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankShares:
    """The main thread of one training process: the share of its time in each phase, and the lines behind each.

    `unmoved` is the share of the watch, up to its end, in which the thread stayed in one place.
    """

    pid: int
    rank: int | None
    phases: Mapping[Phase, float]
    sites: Mapping[Phase, tuple[Site, ...]]
    timeline: tuple[Phase, ...]
    startup_samples: int
    unmoved: float
    last_stack: tuple[Frame, ...]
    cpu: float
    cpu_wanted: float
    track: ProcessTrack | None

    def share(self, *phases: Phase) -> float:
        """The share of the time in these phases together, 0 to 1."""
        return sum(self.phases.get(phase, 0.0) for phase in phases)

    def lines(self, *phases: Phase) -> list[Site]:
        """The user's lines behind these phases, most time first."""
        return sorted((site for phase in phases for site in self.sites.get(phase, ())), key=lambda site: -site.share)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerShares:
    """One loader worker: how much of its time it made batches, ran and waited; shares of its time, 0 to 1."""

    pid: int
    busy: float
    cpu: float
    queued: float
    storage: float
    storage_kinds: tuple[str, ...]
    beginning: float
    sites: tuple[Site, ...]
    track: ProcessTrack


@dataclass(frozen=True, slots=True, kw_only=True)
class JobShares:
    """The whole job; CPU figures are cores (CPU seconds per second); `others_ready` is the demand of other jobs."""

    seconds: float
    ranks: tuple[RankShares, ...]
    workers: tuple[WorkerShares, ...]
    num_workers: float
    worker_births: int
    cpus: float
    cpu_used: float
    cpu_demand: float
    worker_demand: float
    others_used: float
    others_ready: float

    @property
    def lead(self) -> RankShares | None:
        """The rank to report: the one that waits least, since the others wait for it; None with too few samples."""
        seen = [r for r in self.ranks if len(r.timeline) >= FEWEST_SAMPLES]
        return min(seen, key=lambda r: r.share(Phase.COLLECTIVE, Phase.SLEEP), default=None)


def entries(inside: Iterable[bool]) -> int:
    """How often a series of moments changes from outside to inside."""
    return sum(here and not before for before, here in pairwise(inside))


def share_inside(watch: Watch, pid: int, file: Pattern) -> float:
    """The share of the main thread's time, 0 to 1, in which its stack had a frame from a file that matches."""
    if not isinstance(watch.stacks, Stacks):
        return 0.0
    inside = {i for i, frame in enumerate(watch.stacks.frames) if file.search(frame.file)}
    samples = [sample for t in watch.stacks.threads if t.is_main and t.pid == pid for sample in t.samples]
    return sum(not inside.isdisjoint(sample) for sample in samples) / max(1, len(samples))


@lru_cache(maxsize=4)
def summarise(watch: Watch) -> JobShares:
    """All shares of a watch; computed once for each watch."""
    stacks = watch.stacks if isinstance(watch.stacks, Stacks) else None
    tracks = {track.pid: track for track in watch.processes}
    mains = {t.pid: t for t in stacks.threads if t.is_main and t.samples} if stacks else {}
    worker_pids = {pid for pid, t in tracks.items() if t.name == WORKER_NAME}
    worker_pids |= {pid for pid, t in mains.items() if stacks and _is_worker(t, stacks)}
    ranks = []
    if stacks is not None:
        candidates = [t for pid, t in mains.items() if pid not in worker_pids]
        ranks = _choose_ranks([_rank(t, stacks, watch, tracks.get(t.pid)) for t in candidates], watch.pid)
    workers = [_worker(tracks[pid], mains.get(pid), stacks) for pid in sorted(worker_pids) if pid in tracks]
    used = sum(t.cpu_s for t in watch.processes) / watch.seconds
    limits = watch.limits if isinstance(watch.limits, Limits) else None
    busy = limits.machine_busy_cores if limits is not None else Absent("no limits")
    others = max(0.0, busy - used) if isinstance(busy, float) else 0.0
    demand = sum(map(wanted_s, watch.processes)) / watch.seconds
    return JobShares(
        seconds=watch.seconds,
        ranks=tuple(ranks),
        workers=tuple(workers),
        num_workers=_concurrent([w.track for w in workers], watch.seconds),
        worker_births=sum(w.track.born_during_watch for w in workers),
        cpus=limits.cpus_usable if limits is not None else 1.0,
        cpu_used=used,
        cpu_demand=demand,
        worker_demand=sum(wanted_s(w.track) for w in workers) / watch.seconds,
        others_used=others,
        others_ready=_others_ready(limits, used, demand, others) if limits is not None else 0.0,
    )


def _others_ready(limits: Limits, used: float, demand: float, others: float) -> float:
    """Threads of other jobs that want this job's CPUs, from the share of its demand that this job got."""
    if limits.cpus_usable < limits.cpus_affinity:
        # no other job shares a quota
        return 0.0
    elsewhere = limits.cpus_online - limits.cpus_affinity
    least = max(0.0, others - elsewhere)
    if used >= 0.9 * demand:
        return least
    return max(least, limits.cpus_affinity * demand / max(used, 0.01) - demand)


def wanted_s(track: ProcessTrack) -> float:
    """CPU seconds that a process used, plus the seconds in which its threads were ready but did not run, if known."""
    return track.cpu_s + known_or(track.queued_s, 0.0)


def _concurrent(tracks: Sequence[ProcessTrack], seconds: float) -> float:
    """The most workers that lived at the same time, so that restarted workers do not count twice."""
    if not tracks:
        return 0.0
    moments = [t.first_s for t in tracks] + [seconds / 2]
    return float(max(sum(t.first_s <= m <= t.last_s for t in tracks) for m in moments))


def _is_worker(thread: ThreadStacks, stacks: Stacks) -> bool:
    frames = {i for sample in set(thread.samples) for i in sample}
    return any(stacks.frames[i].function == "_worker_loop" for i in frames)


def _choose_ranks(candidates: list[RankShares], pid: int) -> list[RankShares]:
    computing = [r for r in candidates if r.share(*COMPUTE, Phase.COLLECTIVE) > 0]
    # a rank that stands still shows no training phase at all
    known = {r.pid for r in candidates if r.rank is not None}
    first = [r for r in candidates if r.pid in known and r.track is not None and r.track.parent not in known]
    computing = list({r.pid: r for r in (*computing, *first)}.values())
    training = computing or [r for r in candidates if r.share(*TRAINING) > 0 and not _is_spawned(r.track)]
    if training:
        # there are helper processes too (trackers, compile workers), and their few samples may look like anything
        return sorted(training, key=lambda r: (r.rank is None, r.rank or 0, r.pid))
    return [r for r in candidates if r.pid == pid] or candidates[:1]


def _is_spawned(track: ProcessTrack | None) -> bool:
    return track is not None and "multiprocessing.spawn" in track.command


def _rank(thread: ThreadStacks, stacks: Stacks, watch: Watch, track: ProcessTrack | None) -> RankShares:
    # an interrupted job unwinds its stack for a second before it ends
    spare = int(1.5 * stacks.rate_hz) if watch.interrupted and watch.ended else 0
    samples = thread.samples[: max(1, len(thread.samples) - spare)]
    found = {sample: classify([stacks.frames[i] for i in sample], stacks.lines) for sample in set(samples)}
    known = settle(found, stacks, watch.glances, thread.pid)
    seen = [known[sample] for sample in samples]
    begin = _first_training(seen)
    seen = seen[begin:] or seen
    count = len(seen)
    phases = Counter(sighting.phase for sighting in seen)
    cpu = queued = 0.0
    if track is not None:
        cpu, queued = track.main_cpu_s / track.seconds, known_or(track.main_queued_s, 0.0) / track.seconds
    return RankShares(
        pid=thread.pid,
        rank=None if track is None or isinstance(track.rank, Absent) else track.rank,
        phases={phase: n / count for phase, n in phases.items()},
        sites={phase: _sites([s.site for s in seen if s.phase is phase], count, stacks) for phase in phases},
        timeline=tuple(s.phase for s in seen),
        startup_samples=begin,
        unmoved=_unmoved([known[sample] for sample in samples]),
        last_stack=tuple(stacks.frames[i] for i in samples[-1]),
        cpu=cpu,
        cpu_wanted=cpu + queued,
        track=track,
    )


def _first_training(seen: Sequence[Sighting]) -> int:
    """The sample at which training begins if the watch began earlier: the first batch, not imports and building."""
    if not seen or seen[0].phase in TRAINING:
        return 0
    first = next((i for i, s in enumerate(seen) if s.phase in TRAINING), 0)
    startup = sum(s.phase is Phase.STARTUP for s in seen[:first])
    return first if startup >= 3 else 0


def _unmoved(seen: Sequence[Sighting]) -> float:
    """The share of the watch, up to its end, in which phase and line of the user's code stayed the same.

    Deeper frames may differ: a wait with a time limit runs in a loop.
    """
    last = seen[-1]
    changed = next((i for i in range(len(seen) - 1, -1, -1) if seen[i] != last), -1)
    return (len(seen) - 1 - changed) / len(seen)


def _sites(frames: Iterable[Frame | None], count: int, stacks: Stacks) -> tuple[Site, ...]:
    counted = Counter(frame for frame in frames if frame is not None)
    return tuple(Site(f, n / count, stacks.lines.get((f.file, f.line), "")) for f, n in counted.most_common(5))


def _worker(track: ProcessTrack, thread: ThreadStacks | None, stacks: Stacks | None) -> WorkerShares:
    cpu, queued = track.main_cpu_s / track.seconds, known_or(track.main_queued_s, 0.0) / track.seconds
    busy, beginning = min(1.0, cpu + queued), 0.0
    sites: tuple[Site, ...] = ()
    if thread is not None and stacks is not None:
        count = len(thread.samples)
        states = {sample: _worker_state([stacks.frames[i] for i in sample]) for sample in set(thread.samples)}
        busy = sum(states[sample] != _IDLE for sample in thread.samples) / count
        beginning = sum(states[sample] == _BEGIN for sample in thread.samples) / count
        fetching = [sample for sample in thread.samples if states[sample] == _FETCH]
        sites = _sites((own_line([stacks.frames[i] for i in sample]) for sample in fetching), count, stacks)
    storage = {k: n for k, n in track.blocked.items() if k in _STORAGE_CALLS or " file " in k or k == "recvfrom socket"}
    return WorkerShares(
        pid=track.pid,
        busy=busy,
        cpu=cpu,
        queued=queued,
        storage=sum(storage.values()) / max(1, track.looks),
        beginning=beginning,
        storage_kinds=tuple(sorted(storage, key=lambda k: -storage[k])),
        sites=sites,
        track=track,
    )


def _worker_state(frames: Sequence[Frame]) -> str:
    names = [f.function.rpartition(".")[2] for f in frames]
    if "fetch" in names:
        return _FETCH
    if "_worker_loop" not in names:
        return _BEGIN
    below = names[names.index("_worker_loop") + 1 :]
    if "put" in below or not below:
        return _PUT
    return _IDLE if "get" in below else _FETCH
