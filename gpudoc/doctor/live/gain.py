"""What a fix would gain, from a queue of one consumer (the main thread) and n producers (the loader's workers).

All figures are estimates: the job is taken as steady, and work as something that can be moved between CPUs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gpudoc.doctor.live.phases import Phase
from gpudoc.doctor.live.shares import JobShares

# what passing a batch between processes adds to the work of making it: serialising, one copy to shared memory
IPC = 1.1
# a rate within this of what can be had is as good as it gets
ENOUGH = 1.1
MOST_WORKERS = 64


@dataclass(frozen=True, slots=True)
class LoaderPlan:
    """The number of workers to use, how much faster the job would be, and what then limits it."""

    num_workers: int
    gain: float
    limit: str


def plan_workers(job: JobShares) -> LoaderPlan:
    """The fewest workers that reach the best rate this job can have on its CPUs.

    The consumer alone allows 1 / (1 - waiting); n workers allow n / (workers busy now); the CPUs allow free / used.
    """
    lead = job.lead
    if lead is None:
        return LoaderPlan(0, 1.0, "unknown")
    in_main = lead.share(Phase.DATA_LOAD, Phase.COLLATE)
    waiting = lead.share(Phase.DATA_WAIT, Phase.DATA_RECEIVE) + in_main
    consumer = 1 / max(0.02, 1 - waiting)
    supply = max(0.02, in_main * IPC + sum(w.busy * _life(w.track.seconds, job.seconds) for w in job.workers))
    cpus = cpu_room(job)
    best = max(1.0, min(consumer, cpus))
    limit = "the number of CPUs" if cpus < consumer else "the training step"
    fewest = min(MOST_WORKERS, max(1, math.ceil(best / ENOUGH * supply)))
    return LoaderPlan(fewest, best, limit)


def cpu_room(job: JobShares) -> float:
    """How many times more work per second the CPUs could do, from what the job asks for: run, or ready to run.

    What other jobs use is not taken off: a fair scheduler gives a job with more busy processes more of the CPUs.
    """
    return max(1.0, job.cpus / max(job.cpu_demand, 0.05))


def saturated(job: JobShares) -> bool:
    """Whether the job itself asks for nearly all the CPUs it may use, run or ready to run."""
    return job.cpu_demand >= 0.88 * job.cpus


def without(share: float) -> float:
    """The speed-up when a part of the time that nothing overlaps falls away."""
    return 1 / max(0.02, 1 - min(share, 0.98))


def _life(lived_s: float, seconds: float) -> float:
    return min(1.0, lived_s / max(seconds, 1e-9))
