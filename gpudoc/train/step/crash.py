"""What a rank that could not go on where no vote was possible leaves for the ranks that are started after it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from gpudoc.errors import ExitCode, GpudocError
from gpudoc.profile.model import Rescue
from gpudoc.train.events import Event, Rescued
from gpudoc.train.job import Job
from gpudoc.train.ranks.distributed import Distributed
from gpudoc.train.ranks.protocol import on_rank_0
from gpudoc.train.start.profiles import remember_rescue
from gpudoc.train.state.run_dir import write_whole

FILE = "smaller-batch.json"
UNUSED_FILE = "unused-parameters.json"

Phase = Literal["train", "evaluate"]


def leave_smaller_batch(job: Job, seen: str, phase: Phase = "train") -> None:
    """Write down the micro batch to start again with; GpudocError when there is no smaller one."""
    before = job.order.micro_batch if phase == "train" else job.progress.eval_batch
    where = f"at step {job.progress.step}" if phase == "train" else "in evaluation"
    if before == 1 or not job.settings.rescue:
        why = "with one sample" if before == 1 else "and rescue is off"
        raise GpudocError(
            f"out of memory {where} {why}: {seen}",
            hint="smaller or shorter samples, a smaller model, or more processes to spread it over",
            exit_code=ExitCode.BAD_ANSWER,
        )
    found = {"step": job.progress.step, "from_batch": before, "to_batch": before // 2, "shapes": seen, "phase": phase}
    write_whole(job.run.path / FILE, json.dumps(found) + "\n")


def leave_unused(job: Job) -> None:
    """Write down that gradients must be exchanged after backward."""
    write_whole(job.run.path / UNUSED_FILE, json.dumps({"step": job.progress.step}) + "\n")


def take_over(job: Job) -> Iterator[Event]:
    """Do as the ranks before left it, on all ranks alike; a smaller batch is recorded as their rescue."""
    unused = on_rank_0(job.ranks, lambda: _take(job.run.path / UNUSED_FILE))
    job.progress.reduce_after_backward |= unused is not None
    if job.progress.reduce_after_backward and isinstance(job.ranks, Distributed):
        job.ranks.reduce_after_backward()
    found = on_rank_0(job.ranks, lambda: _read(_take(job.run.path / FILE)))
    if found is None:
        return
    rescue, phase = found
    smaller = rescue.to_batch
    if phase == "evaluate":
        job.progress.eval_batch = smaller
    else:
        smaller = min(smaller, job.order.micro_batch)
        job.order = job.order.with_micro_batch(smaller)
        job.progress.micro_batch = smaller
    event = Rescued(step=rescue.step, from_batch=rescue.from_batch, to_batch=smaller, phase=phase, shapes=rescue.shapes)
    job.progress.rescues.append(event.document())
    if job.ranks.rank == 0:
        job.sinks.add(event.document())
        if phase == "train":
            remember_rescue(job, rescue)
    yield event


def _read(text: str | None) -> tuple[Rescue, Phase] | None:
    try:
        found = json.loads(text or "")
        phase: Phase = "evaluate" if found.pop("phase", "train") == "evaluate" else "train"
        return Rescue(**found), phase
    except (ValueError, TypeError, AttributeError):
        return None


def _take(place: Path) -> str | None:
    try:
        found = place.read_text("utf-8")
    except OSError:
        return None
    place.unlink(missing_ok=True)
    return found
