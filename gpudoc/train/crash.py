"""What a rank that ran out of memory where no vote was possible leaves for the ranks that are started after it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from gpudoc.errors import ExitCode, GpudocError
from gpudoc.profile.model import Rescue
from gpudoc.train.events import Event, Rescued
from gpudoc.train.job import Job
from gpudoc.train.profiles import remember_rescue
from gpudoc.train.ranks import on_rank_0
from gpudoc.train.rundir import write_whole

FILE = "smaller-batch.json"


def leave_smaller_batch(job: Job, seen: str) -> None:
    """Write down the micro batch to start again with; GpudocError when there is no smaller one."""
    before = job.order.micro_batch
    if before == 1 or not job.settings.rescue:
        why = "with one sample" if before == 1 else "and rescue is off"
        raise GpudocError(
            f"out of memory at step {job.progress.step} {why}: {seen}",
            hint="smaller or shorter samples, a smaller model, or more processes to spread it over",
            exit_code=ExitCode.BAD_ANSWER,
        )
    found = {"step": job.progress.step, "from_batch": before, "to_batch": before // 2, "shapes": seen}
    write_whole(job.run.path / FILE, json.dumps(found) + "\n")


def take_smaller_batch(job: Job) -> Iterator[Event]:
    """Shrink the micro batch as the ranks before left it, on all ranks alike; it is recorded as their rescue."""
    found = on_rank_0(job.ranks, lambda: _take(job.run.path / FILE))
    if found is None:
        return
    smaller = min(found.to_batch, job.order.micro_batch)
    job.order = job.order.with_micro_batch(smaller)
    job.progress.micro_batch = smaller
    event = Rescued(step=found.step, from_batch=found.from_batch, to_batch=smaller, phase="train", shapes=found.shapes)
    job.progress.rescues.append(event.document())
    if job.ranks.rank == 0:
        job.sinks.add(event.document())
        remember_rescue(job, found)
    yield event


def _take(place: Path) -> Rescue | None:
    try:
        found = Rescue(**json.loads(place.read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    place.unlink(missing_ok=True)
    return found
