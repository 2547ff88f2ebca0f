"""Out of memory in the middle of training: undo the step, shrink the micro batch, do the same global batch again."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator

import torch

from gpudoc.errors import ExitCode, GpudocError
from gpudoc.profile.model import Rescue
from gpudoc.train.events import Event, Rescued
from gpudoc.train.job import Job
from gpudoc.train.profiles import remember_rescue
from gpudoc.train.ranks import OOM
from gpudoc.train.undo import Undo
from gpudoc.workload import recompute
from gpudoc.workload.targets import is_out_of_memory

# optimizers make their state in their first step; an error there has changed nothing yet, which is checked
_PROBATION_STEPS = 2


class Rescuer:
    """Undoes and shrinks; and guards the first updates, in which the optimizer's state is made."""

    def __init__(self, job: Job, undo: Undo) -> None:
        self._job = job
        self._undo = undo
        self._guarded = _PROBATION_STEPS
        self.torn = False

    def update(self) -> int:
        """Let the optimizer step. OOM when memory ran out before anything changed; raises when it ran out later."""
        stepper = self._job.stepper
        # one rank's failed update cannot be undone on those that have updated
        before = self._versions() if self._guarded and self._job.ranks.world == 1 else None
        self.torn = True
        try:
            stepper.update()
        except Exception as problem:
            if not is_rescuable(problem):
                raise
            if before is None or not self._untouched(before):
                raise GpudocError(
                    "out of memory while the optimizer was stepping: the weights may be half updated, so the run ends "
                    "and goes on from its last checkpoint",
                    hint="run the same command again with a smaller --batch-size",
                    exit_code=ExitCode.BAD_ANSWER,
                ) from None
            self.torn = False
            return OOM
        self.torn = False
        self._guarded = max(0, self._guarded - 1)
        return 0

    def shrink(self, seen: str, told: str = "") -> Iterator[Event]:
        """Undo the step and take half the micro batch; GpudocError when there is nothing left to shrink.

        `seen` are the shapes of what did not fit; `told` is what reading samples failed with, where it was that.
        """
        job, order = self._job, self._job.order
        self._undo.back()
        free_memory(job.stepper.parts.device)
        self._guarded = _PROBATION_STEPS
        smaller = max(1, order.micro_batch // 2)
        recomputes = False
        if not job.settings.rescue:
            what = f": {told}" if told else f" with {seen}"
            raise self._hopeless(f"out of memory at step {job.progress.step}{what}; rescue is off")
        if order.micro_batch == 1:
            recomputes = self._start_recomputing()
            if not recomputes:
                raise self._hopeless(f"out of memory at step {job.progress.step} with one sample: {told or seen}")
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

    def _versions(self) -> list[int]:
        return [tensor._version for tensor in self._tensors()]

    def _untouched(self, before: list[int]) -> bool:
        """Whether weights and the state that was there are as before; state that was made since is dropped."""
        parameters = self._job.stepper.parameters
        if before[: len(parameters)] != [parameter._version for parameter in parameters]:
            return False
        if len(before) == len(parameters):
            self._job.stepper.parts.optimizer.state.clear()
            return True
        return before == self._versions()

    def _tensors(self) -> list[torch.Tensor]:
        states = self._job.stepper.parts.optimizer.state.values()
        held = [value for state in states for value in state.values() if isinstance(value, torch.Tensor)]
        return [*self._job.stepper.parameters, *held]


def is_rescuable(problem: BaseException) -> bool:
    """Whether memory ran out in a way that leaves the device usable."""
    return is_out_of_memory(problem)


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
