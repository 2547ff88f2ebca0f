"""The first steps of a variant, for their losses: the same weights, samples and random numbers in every trial."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from gpudoc.train.data.draws import Generators, seed_all
from gpudoc.tune.child.training import Trainee
from gpudoc.tune.model.losses import LEAST_STEPS, MOST_STEPS
from gpudoc.tune.trial.messages import TrialRequest
from gpudoc.tune.trial.wire import Emit, Fact, FirstLosses, LifeSign
from gpudoc.workload.batch import Batch
from gpudoc.workload.build import Workload

# fp16 begins with a loss scale that is too large, and halves it in steps that do not update the weights
_MOST_SKIPPED = 12


@dataclass(frozen=True, slots=True)
class FirstSteps:
    """Runs the first steps with one rank's trainee; `agreed` tells each rank whether any rank said yes."""

    trainee: Trainee
    emit: Emit
    agreed: Callable[[bool], bool]

    def run(self, batch: Batch, request: TrialRequest, workload: Workload) -> tuple[float, ...]:
        """The loss of each step; fewer steps if gradients or a loss were not finite, or if steps are slow.

        Emits the losses, and the fact `draws`: whether the step itself draws random numbers, as dropout does.
        """
        seed_all(workload.config.train.seed + request.seed)
        device = self.trainee.device
        generators = Generators(device)
        before = generators.snapshot()
        losses: list[float] = []
        began = time.monotonic()
        for number in range(MOST_STEPS + _MOST_SKIPPED):
            skipped = self.trainee.num_skipped
            loss = self.trainee.train([batch])
            self.emit(LifeSign())
            if number == 0:
                # the first step compiles
                began = time.monotonic()
                moved = generators.moved(before) or _cuda_moved(device, before.cuda)
                self.emit(Fact(name="draws", value=float(bool(moved))))
            if not math.isfinite(loss):
                losses.append(loss)
                break
            if self.trainee.num_skipped == skipped:
                losses.append(loss)
            is_slow = len(losses) >= LEAST_STEPS and time.monotonic() - began > request.seconds_per_batch
            if self.agreed(is_slow) or len(losses) == MOST_STEPS:
                break
        self.emit(FirstLosses(losses=tuple(losses)))
        return tuple(losses)


def _cuda_moved(device: torch.device, before: torch.Tensor | None) -> bool:
    return before is not None and not torch.equal(torch.cuda.get_rng_state(device), before)
