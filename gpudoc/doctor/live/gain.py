"""Estimate a fix's gain from a queue of one consumer (the main thread) and n producers (the loader's workers).

All figures are estimates: they assume that the job is steady and that its work can move between CPUs.
"""

from __future__ import annotations

from dataclasses import replace

from gpudoc.doctor.live.pace import JobPace, is_crowded, step_pace
from gpudoc.doctor.live.phases import Phase, classify
from gpudoc.doctor.live.shares import JobShares, RankShares, summarise
from gpudoc.facts.model import Absent
from gpudoc.facts.process import Stacks, Watch
from gpudoc.frozen import dataclass

# a rate within this factor of the best is good enough; a gain below it is not worth advising
ENOUGH = 1.1
MOST_WORKERS = 64
# no more workers than CPUs are advised if they wait, without needing a CPU, for less of their time than this
WAITS = 0.3
# the time to pass a batch varies tenfold either way if the two processes wait for a CPU for more of their time
QUEUED = 0.2
HANDING = "the cost of passing a batch"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderPlan:
    """The number of workers to use, how much faster the job would be, and its limit then.

    `step` is how long a step takes now, if that is known and the job has no workers yet. `waits` is the share of the
    time in which making batches needs no CPU. `ladder` holds the numbers to try in turn, each with its gain, if there
    are more workers than CPUs: it begins with as many as CPUs. `in_a_crowd`: other processes had the CPUs, so neither
    the length of a step nor the cost of passing a batch is well known.
    """

    num_workers: int
    gain: float
    limit: str
    waits: float = 0.0
    step: JobPace | None = None
    ladder: tuple[tuple[int, float], ...] = ()
    in_a_crowd: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Queue:
    """The work of one step, in units of the time that a step takes now; `cpu` is its whole CPU time."""

    consume: float
    produce: float
    handing: float
    cpu: float
    outside: float
    per_worker: float


def plan_workers(watch: Watch) -> LoaderPlan:
    """The plan with the fewest workers that reach this job's best rate on the CPUs that other jobs leave free.

    A step takes the longest of: the main thread's work, the work that n workers share, and the CPU time for all of it.
    """
    job = summarise(watch)
    lead = job.lead
    if lead is None:
        return LoaderPlan(num_workers=0, gain=1.0, limit="unknown")
    pace = None if job.workers else step_pace(watch, lead)
    queue = _queue(watch, job, lead, pace)
    lengths = {n: max(_terms(job, queue, n).values()) for n in range(1, MOST_WORKERS + 1)}
    best = min(lengths, key=lambda n: (lengths[n], n))
    # fewer workers are good enough, unless they lose the whole gain
    fewest = next(n for n in lengths if lengths[n] <= ENOUGH * lengths[best])
    fewest = fewest if ENOUGH * lengths[fewest] <= 1 else best
    waits = 1 - min(1.0, queue.per_worker)
    if waits < WAITS:
        # PyTorch warns about more workers than CPUs, and here it is right
        fewest = min(fewest, max(1, int(job.cpus)))
    terms = _terms(job, queue, best)
    limit = max(terms, key=lambda name: terms[name])
    gain = 1 / max(lengths[fewest], 0.02)
    free = replace(queue, handing=0.0)
    if gain < ENOUGH <= 1 / min(max(_terms(job, free, n).values()) for n in lengths):
        limit = HANDING
    gain = max(1.0, gain) if job.workers else gain
    # leave out a rung without a gain
    ladder = tuple((n, 1 / lengths[n]) for n in _rungs(job, fewest) if ENOUGH * lengths[n] <= 1)
    ladder = ladder if len(ladder) > 1 else ()
    crowd = is_crowded(lead) or (not isinstance(watch.handoff, Absent) and watch.handoff.queued >= QUEUED)
    return LoaderPlan(
        num_workers=fewest, gain=gain, limit=limit, waits=waits, step=pace, ladder=ladder, in_a_crowd=crowd
    )


def _rungs(job: JobShares, most: int) -> list[int]:
    """As many workers as CPUs, or one more than now, then twice as many each time, up to `most`; [] if none fits."""
    first = max(1, int(job.cpus), round(job.num_workers) + 1)
    rungs = [first << n for n in range(MOST_WORKERS.bit_length()) if first << n < most]
    return [*rungs, most] if rungs else []


def _queue(watch: Watch, job: JobShares, lead: RankShares, pace: JobPace | None) -> _Queue:
    waiting, in_main = lead.share(Phase.DATA_WAIT), lead.share(Phase.DATA_LOAD, Phase.COLLATE)
    working = [w for w in job.workers if w.busy > 0]
    made = sum(w.busy * min(1.0, w.track.seconds / job.seconds) for w in working)
    handing = handing_s(watch, lead) / pace.seconds if pace is not None and in_main else 0.0
    per_worker = lead.cpu_wanted
    if working:
        per_worker = sum(min(1.0, (w.cpu + w.queued) / w.busy) for w in working) / len(working)
    return _Queue(
        consume=max(0.02, 1 - waiting - in_main),
        produce=max(0.02, in_main + made),
        handing=handing,
        cpu=job.cpu_used,
        # the main thread needs more CPU once it no longer waits
        outside=(job.cpu_demand - job.worker_demand) / max(0.05, 1 - waiting),
        per_worker=per_worker,
    )


def _terms(job: JobShares, queue: _Queue, num_workers: int) -> dict[str, float]:
    """How long a step takes with this many workers, for each possible limit."""
    produced = (queue.produce + queue.handing) / num_workers
    room = capacity(job, queue.outside + num_workers * queue.per_worker)
    return {
        "the training step": queue.consume + queue.handing,
        "the number of workers": produced,
        "the number of CPUs": (queue.cpu + queue.handing) / max(room, 0.01),
    }


def capacity(job: JobShares, threads: float) -> float:
    """CPU seconds per second that this many threads of the job get if other jobs' threads have the same priority.

    More threads than CPUs would only take CPU from other jobs, so they do not count unless the job has them already.
    """
    threads = max(min(threads, job.cpus), job.cpu_demand)
    return min(threads, job.cpus, job.cpus * threads / max(threads + job.others_ready, 0.01))


def handing_s(watch: Watch, lead: RankShares) -> float:
    """Seconds for passing one batch from a worker to the main process; 0 if that was not measured."""
    if isinstance(watch.handoff, Absent):
        return 0.0
    free, held = watch.handoff.free_s, watch.handoff.held_s
    return free + _holds_the_lock(watch, lead) * max(0.0, held - free)


def _holds_the_lock(watch: Watch, lead: RankShares) -> float:
    """The share of the glances at loading that found the interpreter's lock held; 0.5 without glances."""
    if isinstance(watch.glances, Absent) or not isinstance(watch.stacks, Stacks):
        return 0.5
    lines = watch.stacks.lines
    looks = [
        look.holds_gil
        for look in watch.glances
        if look.pid == lead.pid and classify(look.frames, lines).phase in (Phase.DATA_LOAD, Phase.COLLATE)
    ]
    return sum(looks) / len(looks) if looks else 0.5


def saturated(job: JobShares) -> bool:
    """Whether the job's threads, running or ready to run, want nearly all the CPUs it may use."""
    return job.cpu_demand >= 0.88 * job.cpus


def without(share: float) -> float:
    """The speed-up if a part of the time that nothing overlaps is removed."""
    return 1 / max(0.02, 1 - min(share, 0.98))
