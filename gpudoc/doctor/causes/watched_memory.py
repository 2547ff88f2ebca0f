"""Memory of a running job that grows: what a process keeps, and what loader workers copy of the memory they share."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

from gpudoc.doctor.live.phases import Phase
from gpudoc.doctor.live.say import MODEL, PROC, finding, percent, place
from gpudoc.doctor.live.shares import JobShares, WorkerShares, summarise
from gpudoc.doctor.live.trend import LEAST_SECONDS, Growth, grows
from gpudoc.doctor.model import Evidence, Finder, Finding, Observation, Remedy, Skip
from gpudoc.facts.process import Frame, Limits, Pages, ProcessTrack, Stacks, Watch
from gpudoc.units import format_bytes, format_seconds

# a process fills its memory with imports and first steps, and for a worker the first batches copy what they touch
SETTLED_AFTER_S = 10.0
WORKER_SETTLED_AFTER_S = 5.0
# both, and the time that is looked at, are seconds of a job that gets the CPU it wants: beside others a warm-up of ten
# seconds takes forty and looks like a leak all along
LEAST_AT_WORK_S = 8.0
# in the first steps the allocator learns the sizes, and a crowded machine takes seconds for each
LEAST_STEPS = 10


def find_memory_growth(evidence: Evidence) -> Iterator[Finding | Skip]:
    """Memory of the main process or of its workers that grows steadily; with the line that keeps the graph, if seen."""
    watch = evidence.watch
    if watch is None:
        return
    job = summarise(watch)
    if any(r.startup_samples or r.share(Phase.STARTUP) > 0.02 for r in job.ranks) or not job.ranks:
        yield Skip("the job was starting up, when memory always grows")
        return
    if watch.seconds < LEAST_SECONDS:
        yield Skip(f"memory is looked at over {LEAST_SECONDS:.0f} s at least: --seconds 20")
        return
    steps = _steps(job)
    if steps is not None and steps < LEAST_STEPS:
        yield Skip(f"{steps} steps were seen, and memory is looked at over {LEAST_STEPS} at least: --seconds 120")
        return
    gets = _share_of_its_wish(job)
    if watch.seconds * gets < LEAST_AT_WORK_S:
        # with the seconds in which it has not settled yet
        least_s = math.ceil((LEAST_AT_WORK_S + SETTLED_AFTER_S) / gets / 10) * 10
        yield Skip(
            f"others leave the job {percent(gets)} of the CPU that it wants, so that it warms up slowly: "
            f"--seconds {least_s}"
        )
        return
    settled = {r.pid for r in job.ranks} | {w.pid for w in job.workers if w.beginning == 0}
    growing = [
        (t, g) for t in watch.processes if t.pid in settled and (g := grows(_settled(t, gets), t.cpu)) is not None
    ]
    if not growing:
        return
    worst, growth = max(growing, key=lambda pair: pair[1].bytes_per_s)
    total = sum(g.bytes_per_s for _, g in growing)
    room = _room(watch)
    left = f"{format_seconds(room / total)} until it is full" if room is not None else "room unknown"
    of_workers = {w.pid for w in job.workers}
    kept = _kept_lines(watch)
    name = "leak_graph_kept" if kept and worst.pid not in of_workers else "host_memory_leak"
    what = "a loader worker" if worst.pid in of_workers else "the training process"
    title = f"The memory of {what} grows by {format_bytes(total)} per second: {left}"
    if name == "leak_graph_kept":
        title = (
            f"The loss is kept with its graph at {kept[0]}: memory grows by {format_bytes(total)} per second, {left}"
        )
    yield finding(
        name,
        lost=0.5,
        sure=0.8 if name == "leak_graph_kept" else 0.75,
        title=title,
        evidence=(
            Observation("memory_growth", _describe(worst, growth), PROC),
            Observation("time_left", left, MODEL),
            *(Observation("kept_at", line, "source") for line in kept[:3]),
        ),
        fix=_leak_fix(name, kept, several_ranks=len(job.ranks) > 1),
    )


def _steps(job: JobShares) -> int | None:
    """How often the leading rank came to the same phase again; None where it shows no two phases to count by."""
    lead = job.lead
    if lead is None:
        return None
    often = [phase for phase, share in lead.phases.items() if 0.02 <= share <= 0.98]
    entries = [sum(b is phase and a is not phase for a, b in pairwise(lead.timeline)) for phase in often]
    return max(entries, default=None)


def _share_of_its_wish(job: JobShares) -> float:
    """The part of the time in which the leading main thread could run that it ran, 0 to 1; 1 where it is not known."""
    lead = job.lead
    return min(1.0, max(0.01, lead.cpu / lead.cpu_wanted)) if lead is not None and lead.cpu_wanted > 0 else 1.0


def _settled(track: ProcessTrack, gets: float) -> list[tuple[float, int]]:
    """The memory of a process without its first seconds at work, in which imports and first steps fill it; `gets` is
    the part of its time in which others let it work.
    """
    return [(t, size) for t, size in track.memory if (track.age_s + t - track.first_s) * gets >= SETTLED_AFTER_S]


def _describe(track: ProcessTrack, growth: Growth) -> str:
    return (
        f"process {track.pid}: {format_bytes(growth.first)} to {format_bytes(growth.last)}, "
        f"{format_bytes(growth.bytes_per_s)}/s"
    )


def _leak_fix(name: str, kept: list[str], *, several_ranks: bool) -> tuple[Remedy, ...]:
    if name == "leak_graph_kept":
        return (
            Remedy(say=f"Keep the number, not the tensor, at {kept[0].split(' ')[0]}: loss.item() or loss.detach()."),
        )
    # 40 MiB/s in two ranks of DDP over gloo, nothing with one arena (torch 2.13, glibc 2.36, 2026-11-21)
    arenas = Remedy(
        say="Try with one of glibc's arenas: ranks that exchange over gloo allocate in many threads, and arenas keep "
        "the holes; when memory stays, that was it.",
        run="MALLOC_ARENA_MAX=1 torchrun ... train.py",
    )
    return (
        *((arenas,) if several_ranks else ()),
        Remedy(
            say="Look for a list, dict or cache that every step adds to; in a Dataset, hold data in "
            "arrays, not Python lists."
        ),
        Remedy(say="Find the line that allocates.", run="memray run --live train.py"),
    )


def _kept_lines(watch: Watch) -> list[str]:
    if not isinstance(watch.stacks, Stacks):
        return []
    return [
        f"{place(Frame('', file, line), watch)} {text}"
        for (file, line), text in sorted(watch.stacks.accumulations.items())
    ]


def _room(watch: Watch) -> float | None:
    limits = watch.limits
    if not isinstance(limits, Limits):
        return None
    rooms = [float(limits.memory_available_bytes)] if isinstance(limits.memory_available_bytes, int) else []
    if isinstance(limits.memory_limit_bytes, int) and isinstance(limits.memory_used_bytes, int):
        rooms.append(float(max(0, limits.memory_limit_bytes - limits.memory_used_bytes)))
    return min(rooms) if rooms else None


def find_copied_pages(evidence: Evidence) -> Iterator[Finding | Skip]:
    """Workers whose memory stays as large as it is and becomes their own page by page: reading an object writes its
    reference count, and the kernel copies the page that was shared since the fork."""
    watch = evidence.watch
    if watch is None:
        return
    job = summarise(watch)
    if not job.workers:
        return
    reason = _cannot_tell(watch, job)
    if reason:
        yield Skip(reason)
        return
    copying = [(w, g) for w in job.workers if (g := grows(_copied(w))) is not None]
    if not copying:
        return
    total = sum(growth.bytes_per_s for _, growth in copying)
    shared = sum(w.track.pages[-1].mapped_bytes - w.track.pages[-1].own_bytes for w, _ in copying)
    room = _room(watch)
    yield finding(
        "worker_copy_on_write_growth",
        lost=0.5,
        sure=0.75,
        title=f"{_workers(len(copying))} the data set's Python objects page by page: {format_bytes(total)} per second",
        evidence=(
            Observation("copied", _describe_copies(copying), PROC),
            Observation("still_shared", f"{format_bytes(shared)}, the most that they can still copy", PROC),
            Observation("time_left", _until_full(room, total, shared), MODEL),
        ),
    )


def _cannot_tell(watch: Watch, job: JobShares) -> str:
    if not any(w.track.pages for w in job.workers):
        return "no Pss_Anon in /proc/PID/smaps_rollup"
    if watch.seconds < LEAST_SECONDS:
        return f"memory is looked at over {LEAST_SECONDS:.0f} s at least: --seconds 20"
    # a page is counted by how many share it, so a worker that begins or ends changes the figures of the others
    if any(w.track.born_during_watch or w.track.died_during_watch for w in job.workers):
        return "loader workers began or ended while watched"
    return ""


def _copied(worker: WorkerShares) -> list[tuple[float, int]]:
    """A worker's own memory without what it allocated since: what is left is pages that it copied."""
    track = worker.track
    settled = [p for p in track.pages if track.age_s + p.time_s - track.first_s >= WORKER_SETTLED_AFTER_S]
    return [(p.time_s, p.own_bytes - (p.mapped_bytes - settled[0].mapped_bytes)) for p in settled]


def _workers(number: int) -> str:
    return f"{number} loader workers copy" if number > 1 else "A loader worker copies"


def _describe_copies(copying: list[tuple[WorkerShares, Growth]]) -> str:
    worst, growth = max(copying, key=lambda pair: pair[1].bytes_per_s)
    last: Pages = worst.track.pages[-1]
    return (
        f"process {worst.pid}: its own part went from {format_bytes(growth.first)} to {format_bytes(growth.last)} of "
        f"{format_bytes(last.mapped_bytes)}, {format_bytes(growth.bytes_per_s)}/s"
    )


def _until_full(room: float | None, rate: float, shared: float) -> str:
    if room is None:
        return "room unknown"
    if shared < room:
        return f"all of it fits into the {format_bytes(room)} that are free"
    return f"{format_seconds(room / rate)} until memory is full"


FINDERS = (
    Finder(id="host_memory_leak", find=find_memory_growth, reads="watch"),
    Finder(id="worker_copy_on_write_growth", find=find_copied_pages, reads="watch"),
)
