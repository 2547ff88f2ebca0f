"""Messages for the next ranks from a rank that failed where ranks could not vote."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gpudoc.errors import ExitCode, GpudocError
from gpudoc.profile.model import Rescue
from gpudoc.train.events import Event, Rescued
from gpudoc.train.loop.course import Course, Rescues
from gpudoc.train.ranks.distributed import Distributed
from gpudoc.train.ranks.protocol import Ranks, on_rank_0
from gpudoc.train.state.run_dir import write_whole

FILE = "smaller-batch.json"
UNUSED_FILE = "unused-parameters.json"

Phase = Literal["train", "evaluate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """The folder for messages to the ranks that are started next, and the run; without `rescue` no smaller batch."""

    folder: Path
    course: Course
    rescue: bool = True


def leave_smaller_batch(restart: Restart, seen: str, phase: Phase = "train") -> None:
    """Write down the micro batch for the restart; GpudocError if there is no smaller one."""
    order, progress = restart.course.order, restart.course.progress
    before = order.micro_batch if phase == "train" else progress.eval_batch
    where = f"at step {progress.step}" if phase == "train" else "in evaluation"
    if before == 1 or not restart.rescue:
        why = "with one sample" if before == 1 else "and rescue is off"
        raise GpudocError(
            f"out of memory {where} {why}: {seen}",
            hint="use smaller or shorter samples, a smaller model, or more processes to spread it over",
            exit_code=ExitCode.BAD_ANSWER,
        )
    found = {"step": progress.step, "from_batch": before, "to_batch": before // 2, "shapes": seen, "phase": phase}
    write_whole(restart.folder / FILE, json.dumps(found) + "\n")


def leave_unused(restart: Restart) -> None:
    """Write down that gradients must be exchanged after backward."""
    write_whole(restart.folder / UNUSED_FILE, json.dumps({"step": restart.course.progress.step}) + "\n")


def take_over(restart: Restart, ranks: Ranks, rescues: Rescues) -> Iterator[Event]:
    """Apply the messages of the previous ranks on all ranks; a smaller batch is recorded as their rescue."""
    course, progress = restart.course, restart.course.progress
    unused = on_rank_0(ranks, lambda: _take(restart.folder / UNUSED_FILE))
    progress.reduce_after_backward |= unused is not None
    if progress.reduce_after_backward and isinstance(ranks, Distributed):
        ranks.reduce_after_backward()
    found = on_rank_0(ranks, lambda: _read(_take(restart.folder / FILE)))
    if found is None:
        return
    rescue, phase = found
    smaller = rescue.to_batch
    if phase == "evaluate":
        progress.eval_batch = smaller
    else:
        smaller = min(smaller, course.order.micro_batch)
        course.take_micro_batch(smaller)
    event = Rescued(step=rescue.step, from_batch=rescue.from_batch, to_batch=smaller, phase=phase, shapes=rescue.shapes)
    yield from rescues.record(event)


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
