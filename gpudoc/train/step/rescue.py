"""Out of memory in the middle of training: undo the step, shrink the micro batch, do the same global batch again."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator

import torch
from torch import nn

from gpudoc.errors import ExitCode, GpudocError
from gpudoc.profile.model import Rescue
from gpudoc.train.events import Event, Rescued
from gpudoc.train.job import Job
from gpudoc.train.ranks.distributed import abandoned
from gpudoc.train.ranks.protocol import OOM
from gpudoc.train.start.profiles import remember_rescue
from gpudoc.train.step.undo import Undo
from gpudoc.workload import recompute
from gpudoc.workload.memory import is_out_of_memory

# optimizers make their state in the first step that changes something; running out of memory there can be undone
_PROBATION_STEPS = 2
_MOST_TOLD = 200


class Rescuer:
    """Undoes and shrinks; and guards the first updates, in which the optimizer's state is made."""

    def __init__(self, job: Job, undo: Undo) -> None:
        self._job = job
        self._undo = undo
        self._guarded = _PROBATION_STEPS
        self._noted = ""

    def note(self, problem: BaseException) -> int:
        """OOM, as a flag to vote with; what `problem` said is told if nothing can be shrunk any more."""
        lines = str(problem).strip().splitlines() or [type(problem).__name__]
        self._noted = lines[0][:_MOST_TOLD]
        return OOM

    def update(self) -> int:
        """Let the optimizer step. OOM when memory ran out before anything changed; raises when it ran out later."""
        stepper = self._job.stepper
        stepper.exchange()
        fresh: list[nn.Parameter] = []
        before: list[int] | None = None
        if self._guarded:
            # an update cannot be taken back once it is made, so all ranks hear first whether the state fits everywhere
            flags = self._job.ranks.vote(self._try_state())
            if flags:
                return flags
            fresh, before = stepper.without_state(), self._versions()
        try:
            stepper.apply()
        except Exception as problem:
            if not is_out_of_memory(problem):
                raise
            return self._take_back(problem, fresh, before)
        if self._guarded:
            if stepper.was_skipped():
                # momentum that SGD's fused kernel was not allowed to write holds whatever the memory held
                stepper.drop_state(fresh)
            else:
                self._guarded -= 1
        return 0

    def _try_state(self) -> int:
        try:
            self._job.stepper.try_state()
        except Exception as problem:
            if not is_out_of_memory(problem):
                raise
            return self.note(problem)
        return 0

    def _take_back(self, problem: Exception, fresh: list[nn.Parameter], before: list[int] | None) -> int:
        """OOM when the update that failed had changed nothing; else raises."""
        stepper = self._job.stepper
        if self._job.ranks.world > 1:
            raise abandoned("the optimizer was stepping") from problem
        stepper.drop_state(fresh)
        if self.torn and (before is None or before != self._versions()):
            raise GpudocError(
                "out of memory while the optimizer was stepping: the weights may be half updated, so the run ends "
                "and goes on from its last checkpoint",
                hint="run the same command again with a smaller --batch-size",
                exit_code=ExitCode.BAD_ANSWER,
            ) from None
        stepper.forget_update()
        return self.note(problem)

    @property
    def torn(self) -> bool:
        """Whether an update began and did not end."""
        return self._job.stepper.is_updating

    def shrink(self, seen: str, told: str = "") -> Iterator[Event]:
        """Undo the step and take half the micro batch; GpudocError when there is nothing left to shrink.

        `seen` are the shapes of what did not fit; `told` is what reading samples failed with, where it was that.
        """
        job, order = self._job, self._job.order
        self._undo.back()
        free_memory(job.stepper.parts.device)
        self._guarded = _PROBATION_STEPS
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

    def _versions(self) -> list[int] | None:
        """What tells whether an update has begun; None for a fused optimizer, whose kernels count nothing up."""
        stepper = self._job.stepper
        if stepper.is_fused:
            return None
        states = stepper.parts.optimizer.state.values()
        held = [value for state in states for value in state.values() if isinstance(value, torch.Tensor)]
        return [tensor._version for tensor in (*stepper.parameters, *held)]


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
