"""A watch as shares of time: what each rank and each loader worker did, and what of the machine the job used."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from gpudoc.doctor.live.phases import COMPUTE, TRAINING, Phase, Sighting, classify, is_collating
from gpudoc.doctor.live.unclear import settle
from gpudoc.facts.live.sources import is_library
from gpudoc.facts.live.tree import WORKER_NAME
from gpudoc.facts.model import Absent
from gpudoc.facts.process import Frame, Limits, ProcessTrack, Stacks, ThreadStacks, Watch

_IDLE, _FETCH, _COLLATE, _PUT, _BEGIN = "idle", "fetch", "collate", "put", "begin"
# half a second of training says nothing
FEWEST_SAMPLES = 15
# reads that a worker makes for its data; `poll` and `read pipe` are how it waits for work
_STORAGE_CALLS = ("openat", "open", "stat", "newfstatat", "statx", "page fault")


@dataclass(frozen=True, slots=True)
class Site:
    """A line of the user's code and the share of a thread's time that was spent under it."""

    frame: Frame
    share: float
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankShares:
    """The main thread of one training process: share of the time per phase, and the lines behind each.

    `unmoved` is the share of the watch, up to its end, in which it stood in one place.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerShares:
    """One loader worker: how long it made batches and how long it had nothing to do; shares of its time, 0 to 1."""

    pid: int
    parent: int
    busy: float
    collate: float
    cpu: float
    queued: float
    storage: float
    storage_kinds: tuple[str, ...]
    beginning: float
    sites: tuple[Site, ...]
    track: ProcessTrack


@dataclass(frozen=True, slots=True, kw_only=True)
class JobShares:
    """The whole job; CPU figures are cores, that is CPU seconds per second; `others_ready` is what other jobs want."""

    seconds: float
    ranks: tuple[RankShares, ...]
    workers: tuple[WorkerShares, ...]
    num_workers: float
    worker_births: int
    cpus: float
    cpus_online: int
    cpu_used: float
    cpu_demand: float
    worker_demand: float
    others_used: float
    others_ready: float
    has_stacks: bool

    @property
    def lead(self) -> RankShares | None:
        """The rank to speak of: the one that waits least, because the others wait for it; None with too few samples."""
        waits = (Phase.COLLECTIVE, Phase.SLEEP)
        seen = [r for r in self.ranks if len(r.timeline) >= FEWEST_SAMPLES]
        return min(seen, key=lambda r: r.share(*waits)) if seen else None


def share_inside(watch: Watch, pid: int, file: re.Pattern[str]) -> float:
    """The share of the main thread's time, 0 to 1, in which a frame of a file that matches was on its stack."""
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
    demand = used + sum(_queued(t) for t in watch.processes) / watch.seconds
    return JobShares(
        seconds=watch.seconds,
        ranks=tuple(ranks),
        workers=tuple(workers),
        num_workers=_concurrent([w.track for w in workers], watch.seconds),
        worker_births=sum(w.track.born_during_watch for w in workers),
        cpus=limits.cpus_usable if limits is not None else 1.0,
        cpus_online=limits.cpus_online if limits is not None else 1,
        cpu_used=used,
        cpu_demand=demand,
        worker_demand=sum(w.track.cpu_s + _queued(w.track) for w in workers) / watch.seconds,
        others_used=others,
        others_ready=_others_ready(limits, used, demand, others) if limits is not None else 0.0,
        has_stacks=stacks is not None,
    )


def _others_ready(limits: Limits, used: float, demand: float, others: float) -> float:
    """Threads of other jobs that want the CPUs of this one, from the share of its wish that this job got."""
    if limits.cpus_usable < limits.cpus_affinity:
        # a quota is the job's own
        return 0.0
    elsewhere = limits.cpus_online - limits.cpus_affinity
    least = max(0.0, others - elsewhere)
    if used >= 0.9 * demand:
        return least
    return max(least, limits.cpus_affinity * demand / max(used, 0.01) - demand)


def _queued(track: ProcessTrack) -> float:
    return 0.0 if isinstance(track.queued_s, Absent) else track.queued_s


def _wanted(track: ProcessTrack | None) -> float:
    """Share of the time in which the main thread ran or was ready to run."""
    if track is None:
        return 0.0
    queued = 0.0 if isinstance(track.main_queued_s, Absent) else track.main_queued_s
    return (track.main_cpu_s + queued) / track.seconds


def _concurrent(tracks: Sequence[ProcessTrack], seconds: float) -> float:
    """Workers that live at the same time: the most at any end of a life, which a restart does not double."""
    if not tracks:
        return 0.0
    moments = [t.first_s for t in tracks] + [seconds / 2]
    return float(max(sum(t.first_s <= m <= t.last_s for t in tracks) for m in moments))


def _is_worker(thread: ThreadStacks, stacks: Stacks) -> bool:
    frames = {i for sample in set(thread.samples) for i in sample}
    return any(stacks.frames[i].function == "_worker_loop" for i in frames)


def _choose_ranks(candidates: list[RankShares], pid: int) -> list[RankShares]:
    computing = [r for r in candidates if r.share(*COMPUTE, Phase.COLLECTIVE) > 0]
    # a rank that stands still shows no phase of training at all
    known = {r.pid for r in candidates if r.rank is not None}
    first = [r for r in candidates if r.pid in known and r.track is not None and r.track.parent not in known]
    computing = list({r.pid: r for r in (*computing, *first)}.values())
    training = computing or [r for r in candidates if r.share(*TRAINING) > 0 and not _is_spawned(r.track)]
    if training:
        # beside the ranks stand helpers (trackers, compile workers) whose few samples look like anything
        return sorted(training, key=lambda r: (r.rank is None, r.rank or 0, r.pid))
    return [r for r in candidates if r.pid == pid] or candidates[:1]


def _is_spawned(track: ProcessTrack | None) -> bool:
    return track is not None and "multiprocessing.spawn" in track.command


def _rank(thread: ThreadStacks, stacks: Stacks, watch: Watch, track: ProcessTrack | None) -> RankShares:
    # a job that was interrupted unwinds its stack for a second before it ends
    spare = int(1.5 * stacks.rate_hz) if watch.interrupted and watch.ended else 0
    samples = thread.samples[: max(1, len(thread.samples) - spare)]
    known: dict[tuple[int, ...], Sighting] = {}
    for sample in set(samples):
        known[sample] = classify([stacks.frames[i] for i in sample], stacks.lines)
    known = settle(known, stacks, watch.glances, thread.pid)
    seen = [known[sample] for sample in samples]
    begin = _first_training(seen)
    seen = seen[begin:] or seen
    count = len(seen)
    phases = Counter(sighting.phase for sighting in seen)
    rank = track.rank if track is not None else Absent("not tracked")
    return RankShares(
        pid=thread.pid,
        rank=rank if isinstance(rank, int) else None,
        phases={phase: n / count for phase, n in phases.items()},
        sites={phase: _sites([s for s in seen if s.phase is phase], count, stacks) for phase in phases},
        timeline=tuple(s.phase for s in seen),
        startup_samples=begin,
        unmoved=_unmoved([known[sample] for sample in samples]),
        last_stack=tuple(stacks.frames[i] for i in samples[-1]),
        cpu=track.main_cpu_s / track.seconds if track is not None else 0.0,
        cpu_wanted=_wanted(track),
        track=track,
    )


def _first_training(seen: Sequence[Sighting]) -> int:
    """Where training begins when the watch began before it: at the first batch, not at imports and building."""
    if not seen or seen[0].phase in TRAINING:
        return 0
    first = next((i for i, s in enumerate(seen) if s.phase in TRAINING), 0)
    startup = sum(s.phase is Phase.STARTUP for s in seen[:first])
    return first if startup >= 3 else 0


def _unmoved(seen: Sequence[Sighting]) -> float:
    """The share of the watch, up to its end, in which phase and line of the user's code stayed the same.

    Deeper frames may differ: a wait with a time limit goes round in a loop.
    """
    last = seen[-1]
    changed = next((i for i in range(len(seen) - 1, -1, -1) if seen[i] != last), -1)
    return (len(seen) - 1 - changed) / len(seen)


def _sites(seen: Sequence[Sighting], count: int, stacks: Stacks) -> tuple[Site, ...]:
    counted = Counter(s.site for s in seen if s.site is not None)
    return tuple(Site(f, n / count, stacks.lines.get((f.file, f.line), "")) for f, n in counted.most_common(5))


def _worker(track: ProcessTrack, thread: ThreadStacks | None, stacks: Stacks | None) -> WorkerShares:
    states: Counter[str] = Counter()
    lines: Counter[Frame] = Counter()
    if thread is not None and stacks is not None:
        known = {sample: _worker_state(sample, stacks) for sample in set(thread.samples)}
        for sample in thread.samples:
            state = known[sample]
            states[state] += 1
            site = next((stacks.frames[i] for i in reversed(sample) if not is_library(stacks.frames[i].file)), None)
            if state in (_FETCH, _COLLATE) and site is not None:
                lines[site] += 1
    count = max(1, sum(states.values()))
    cpu = track.main_cpu_s / track.seconds
    queued = 0.0 if isinstance(track.main_queued_s, Absent) else track.main_queued_s / track.seconds
    storage = {k: n for k, n in track.blocked.items() if k in _STORAGE_CALLS or " file " in k or k == "recvfrom socket"}
    busy = (count - states[_IDLE]) / count if states else min(1.0, cpu + queued)
    text = stacks.lines if stacks is not None else {}
    return WorkerShares(
        pid=track.pid,
        parent=track.parent,
        busy=busy,
        collate=states[_COLLATE] / count,
        cpu=cpu,
        queued=queued,
        storage=sum(storage.values()) / max(1, track.looks),
        beginning=states[_BEGIN] / count,
        storage_kinds=tuple(sorted(storage, key=lambda k: -storage[k])),
        sites=tuple(Site(f, n / count, text.get((f.file, f.line), "")) for f, n in lines.most_common(3)),
        track=track,
    )


def _worker_state(sample: Sequence[int], stacks: Stacks) -> str:
    frames = [stacks.frames[i] for i in sample]
    names = [f.function.rpartition(".")[2] for f in frames]
    if "fetch" in names:
        return _COLLATE if is_collating(frames, stacks.lines) else _FETCH
    if "_worker_loop" not in names:
        return _BEGIN
    below = names[names.index("_worker_loop") + 1 :]
    if "put" in below:
        return _PUT
    return _IDLE if "get" in below else _FETCH if below else _PUT
