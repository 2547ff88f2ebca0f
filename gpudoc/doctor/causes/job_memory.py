"""A running job's memory that grows: a process keeps it, or loader workers copy pages of their shared memory."""

from __future__ import annotations

import math

from gpudoc.doctor.live.finders import watched
from gpudoc.doctor.live.phases import Phase
from gpudoc.doctor.live.say import MODEL, PROC, finding, percent, place
from gpudoc.doctor.live.shares import JobShares, WorkerShares, entries
from gpudoc.doctor.live.trend import LEAST_SECONDS, grows
from gpudoc.doctor.model import Finding, Observation, Skip
from gpudoc.doctor.remedies import do
from gpudoc.facts.process import Frame, Limits, ProcessTrack, Stacks, Watch
from gpudoc.units import format_bytes, format_seconds

# imports and first steps fill a process's memory; a worker's first batches copy the pages that they touch
SETTLED_AFTER_S = 10.0
WORKER_SETTLED_AFTER_S = 5.0
# these two and the least time to judge are seconds of a job that gets all the CPU it wants: if it has to share, a
# warm-up of ten seconds takes forty and looks like a leak all along
LEAST_AT_WORK_S = 8.0
_TOO_SHORT = f"memory needs to be watched for {LEAST_SECONDS:.0f} s or more: --seconds 20"
# 40 MiB/s in two ranks of DDP over gloo, nothing with one arena (torch 2.13, glibc 2.36, 2026-11-21)
_ARENAS = do(
    "Try a single glibc arena: ranks that communicate over gloo allocate in many threads, and each arena keeps "
    "its holes. If memory then stays constant, that was the cause.",
    "MALLOC_ARENA_MAX=1 torchrun ... train.py",
)
# the allocator learns the sizes in the first steps, each of which takes seconds on a crowded machine
LEAST_STEPS = 10


def judge_growth(watch: Watch, job: JobShares) -> Finding | Skip | None:
    """Memory of the main process or its workers that grows steadily; with the line that keeps the graph, if seen."""
    gets = _share_of_its_wish(job)
    reason = _warms_up(watch, job, gets)
    if reason:
        return Skip(reason)
    settled = {r.pid for r in job.ranks} | {w.pid for w in job.workers if w.beginning == 0}
    growing = [
        (g.bytes_per_s, t, g)
        for t in watch.processes
        if t.pid in settled and (g := grows(_settled(t, gets), t.cpu)) is not None
    ]
    if not growing:
        return None
    rate, worst, growth = max(growing, key=lambda each: each[0])
    total = sum(each for each, _, _ in growing)
    room = _room(watch)
    left = f"{format_seconds(room / total)} until it is full" if room is not None else "room unknown"
    kept, in_worker = _kept_lines(watch), worst.pid in {w.pid for w in job.workers}
    seen = (
        Observation("memory_growth", f"process {worst.pid}: {growth}, {format_bytes(rate)}/s", PROC),
        Observation("time_left", left, MODEL),
        *(Observation("kept_at", line, "source") for line in kept[:3]),
    )
    grows_by = f"grows by {format_bytes(total)} per second"
    if kept and not in_worker:
        at = kept[0].split(" ")[0]
        title = f"The loss is kept with its graph at {kept[0]}: memory {grows_by}, {left}"
        fix = [do(f"Keep the number, not the tensor, at {at}: loss.item() or loss.detach().")]
        return finding("leak_graph_kept", lost=0.5, sure=0.8, title=title, evidence=seen, fix=fix)
    title = f"The memory of {'a loader worker' if in_worker else 'the training process'} {grows_by}: {left}"
    adds = "Look for a list, dict or cache that every step adds to"
    fix = [_ARENAS] if len(job.ranks) > 1 else []
    fix.append(do(f"{adds}; in a Dataset, hold data in arrays, not Python lists."))
    fix.append(do("Find the line that allocates.", "memray run --live train.py"))
    return finding("host_memory_leak", lost=0.5, sure=0.75, title=title, evidence=seen, fix=fix)


def _warms_up(watch: Watch, job: JobShares, gets: float) -> str:
    """Why growing memory is not a sign here: it grows at first in every job; '' if it is a sign."""
    if any(r.startup_samples or r.share(Phase.STARTUP) > 0.02 for r in job.ranks) or not job.ranks:
        return "the job was starting up, and memory always grows then"
    if watch.seconds < LEAST_SECONDS:
        return _TOO_SHORT
    steps = _steps(job)
    if steps is not None and steps < LEAST_STEPS:
        return f"{steps} steps were seen, but judging memory takes {LEAST_STEPS} or more: --seconds 120"
    if watch.seconds * gets >= LEAST_AT_WORK_S:
        return ""
    # includes the seconds before the memory settles
    least_s = math.ceil((LEAST_AT_WORK_S + SETTLED_AFTER_S) / gets / 10) * 10
    told = f"other processes leave the job {percent(gets)} of the CPU time it needs"
    return f"{told}, so it warms up slowly: --seconds {least_s}"


def _steps(job: JobShares) -> int | None:
    """How often the leading rank returned to the same phase; None if it shows no change of phases to count."""
    lead = job.lead
    if lead is None:
        return None
    often = [phase for phase, share in lead.phases.items() if 0.02 <= share <= 0.98]
    return max((entries(each is phase for each in lead.timeline) for phase in often), default=None)


def _share_of_its_wish(job: JobShares) -> float:
    """The share of its ready time in which the leading main thread ran, 0 to 1; 1 if that is unknown."""
    lead = job.lead
    return min(1.0, max(0.01, lead.cpu / lead.cpu_wanted)) if lead is not None and lead.cpu_wanted > 0 else 1.0


def _settled(track: ProcessTrack, gets: float) -> list[tuple[float, int]]:
    """The memory of a process without its first seconds of work, in which imports and first steps fill it; `gets` is
    the share of its time in which other processes let it work.
    """
    return [(t, size) for t, size in track.memory if (track.age_s + t - track.first_s) * gets >= SETTLED_AFTER_S]


def _kept_lines(watch: Watch) -> list[str]:
    lines = sorted(watch.stacks.accumulations.items()) if isinstance(watch.stacks, Stacks) else ()
    return [f"{place(Frame('', file, line), watch)} {text}" for (file, line), text in lines]


def _room(watch: Watch) -> float | None:
    limits = watch.limits
    if not isinstance(limits, Limits):
        return None
    rooms = [float(limits.memory_available_bytes)] if isinstance(limits.memory_available_bytes, int) else []
    if isinstance(limits.memory_limit_bytes, int) and isinstance(limits.memory_used_bytes, int):
        rooms.append(float(max(0, limits.memory_limit_bytes - limits.memory_used_bytes)))
    return min(rooms) if rooms else None


def judge_copied_pages(watch: Watch, job: JobShares) -> Finding | Skip | None:
    """Workers whose memory keeps its size but becomes their own page by page: reading an object writes its reference
    count, and the kernel copies the page that was shared since the fork."""
    if not job.workers:
        return None
    reason = _cannot_tell(watch, job)
    if reason:
        return Skip(reason)
    copying = [(g.bytes_per_s, w, g) for w in job.workers if (g := grows(_copied(w))) is not None]
    if not copying:
        return None
    total = sum(rate for rate, _, _ in copying)
    shared = sum(w.track.pages[-1].mapped_bytes - w.track.pages[-1].own_bytes for _, w, _ in copying)
    rate, worst, growth = max(copying, key=lambda each: each[0])
    who = f"{len(copying)} loader workers copy" if len(copying) > 1 else "A loader worker copies"
    mapped = format_bytes(worst.track.pages[-1].mapped_bytes)
    own = f"process {worst.pid}: its own part went from {growth} of {mapped}, {format_bytes(rate)}/s"
    title = f"{who} the data set's Python objects page by page: {format_bytes(total)} per second"
    seen = (
        Observation("copied", own, PROC),
        Observation("still_shared", f"{format_bytes(shared)}, the most they can still copy", PROC),
        Observation("time_left", _until_full(_room(watch), total, shared), MODEL),
    )
    return finding("worker_copy_on_write_growth", lost=0.5, sure=0.75, title=title, evidence=seen)


def _cannot_tell(watch: Watch, job: JobShares) -> str:
    if not any(w.track.pages for w in job.workers):
        return "no Pss_Anon in /proc/PID/smaps_rollup"
    if watch.seconds < LEAST_SECONDS:
        return _TOO_SHORT
    # a page counts by the number of processes that share it, so a worker's start or end changes the others' figures
    if any(w.track.born_during_watch or w.track.died_during_watch for w in job.workers):
        return "loader workers started or ended during the watch"
    return ""


def _copied(worker: WorkerShares) -> list[tuple[float, int]]:
    """A worker's own memory without its new allocations: the pages that it copied."""
    track = worker.track
    settled = [p for p in track.pages if track.age_s + p.time_s - track.first_s >= WORKER_SETTLED_AFTER_S]
    return [(p.time_s, p.own_bytes - (p.mapped_bytes - settled[0].mapped_bytes)) for p in settled]


def _until_full(room: float | None, rate: float, shared: float) -> str:
    if room is None:
        return "room unknown"
    if shared < room:
        return f"all of it fits into the {format_bytes(room)} that are free"
    return f"{format_seconds(room / rate)} until memory is full"


FINDERS = (watched("host_memory_leak", judge_growth), watched("worker_copy_on_write_growth", judge_copied_pages))
