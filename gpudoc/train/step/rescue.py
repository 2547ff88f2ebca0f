"""Out of memory in the middle of training: undo the step, shrink the micro batch, do the same global batch again."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator, Sequence

import torch

from gpudoc.errors import ExitCode, GpudocError
from gpudoc.process.shortage import is_out_of_memory
from gpudoc.profile.model import Rescue
from gpudoc.train.blame import in_model
from gpudoc.train.events import Event, Rescued
from gpudoc.train.job import Job
from gpudoc.train.ranks.distributed import abandoned
from gpudoc.train.ranks.protocol import OOM
from gpudoc.train.start.profiles import remember_rescue
from gpudoc.train.step.guard import Moment
from gpudoc.train.step.step import Micro
from gpudoc.train.step.undo import Undo
from gpudoc.workload import recompute

_MOST_TOLD = 200


class Rescuer:
    """Judges a step that failed, undoes it and halves the micro batch."""

    def __init__(self, job: Job, undo: Undo) -> None:
        self._job = job
        self._undo = undo
        self._noted = ""

    def note(self, problem: BaseException) -> int:
        """OOM, as a flag to vote with; what `problem` said is told if nothing can be shrunk any more."""
        lines = str(problem).strip().splitlines() or [type(problem).__name__]
        self._noted = lines[0][:_MOST_TOLD]
        return OOM

    def judge(self, problem: Exception, at: Moment, micros: Sequence[Micro]) -> int:
        """OOM for a failure that can be undone; raises what is the matter otherwise. Called inside `except`."""
        job = self._job
        if not is_out_of_memory(problem):
            if at == "backward":
                raise in_model(problem, micros[0].batch, job.progress.step == 0) from problem
            raise problem
        if at == "update" and job.ranks.world > 1:
            raise abandoned("the optimizer was stepping") from problem
        if at == "update" and job.stepper.is_updating:
            raise GpudocError(
                "out of memory while the optimizer was stepping: the weights may be half updated, so the run ends "
                "and goes on from its last checkpoint",
                hint="run the same command again with a smaller --batch-size",
                exit_code=ExitCode.BAD_ANSWER,
            ) from None
        return self.note(problem)

    def shrink(self, seen: str, told: str = "") -> Iterator[Event]:
        """Undo the step and take half the micro batch; GpudocError when there is nothing left to shrink.

        `seen` are the shapes of what did not fit; `told` is what reading samples failed with, where it was that.
        """
        job, order = self._job, self._job.order
        self._undo.back()
        free_memory(job.stepper.parts.device)
        smaller = max(1, order.micro_batch // 2)
        noted = f"; {self._noted}" if self._noted and not told else ""
        self._noted = ""
        recomputes = False
        if not job.settings.rescue:
            what = f": {told}" if told else f" with {seen}"
            raise self._hopeless(f"out of memory at step {job.progress.step}{what}; rescue is off{noted}")
        if order.micro_batch == 1:
            recomputes = self._start_recomputing()
            if not recomputes:
                raise self._hopeless(
                    f"out of memory at step {job.progress.step} with one sample: {told or seen}{noted}"
                )
        job.order = order.with_micro_batch(smaller)
        job.progress.micro_batch = smaller
        event = Rescued(
            step=job.progress.step,
            from_batch=order.micro_batch,
            to_batch=smaller,
            phase="train",
            shapes=seen,
            activation_checkpointing=recomputes,
        )
        job.progress.rescues.append(event.document())
        if job.ranks.rank == 0:
            job.sinks.add(event.document())
            found = Rescue(step=event.step, from_batch=order.micro_batch, to_batch=smaller, shapes=seen)
            remember_rescue(job, found)
        yield event

    def _start_recomputing(self) -> bool:
        job = self._job
        if job.progress.activation_checkpointing or not job.settings.may_checkpoint_activations:
            return False
        if not recompute.apply(job.stepper.parts.model):
            return False
        job.progress.activation_checkpointing = True
        return True

    def _hopeless(self, message: str) -> GpudocError:
        hint = "smaller or shorter samples, a smaller model, or more memory; gpudoc tune --target says how much"
        if self._job.settings.rescue and not self._job.settings.may_checkpoint_activations:
            hint = "train.activation_checkpointing: auto in the config would trade time for memory; else " + hint
        return GpudocError(message, hint=hint, exit_code=ExitCode.BAD_ANSWER)


def free_memory(device: torch.device) -> None:
    """Give back what nobody uses, to the device and to the system."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        return
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):
        return
