"""The training that a trial runs: train's own step, optimizer choice, checkpoint and ranks, under one variant."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import NamedTuple, TypeVar

import torch
from torch import nn

from gpudoc.temporary import TemporaryFolder
from gpudoc.train.data.order import Order
from gpudoc.train.loop.evaluate import evaluating, loss_of
from gpudoc.train.ranks.protocol import Alone, Ranks
from gpudoc.train.start.parts import be_deterministic, build_parts, form_of
from gpudoc.train.state.capture import RunProgress, capture
from gpudoc.train.state.checkpoint import Content
from gpudoc.train.state.staging import Staging
from gpudoc.train.state.writer import Writer
from gpudoc.train.step.precision import Precision
from gpudoc.train.step.schedule import Rates
from gpudoc.train.step.sequence import Missing, StepDriver, StepSequence, Undo, share_out
from gpudoc.train.step.step import Micro, Parts, Stepper
from gpudoc.tune.trial.messages import Variant
from gpudoc.workload.batch import Batch
from gpudoc.workload.build import Workload

T = TypeVar("T")

# the last step of a schedule without an end
_MANY_STEPS = 1 << 20


class Unexchanged:
    """Ranks that do not exchange gradients, to measure a step without the exchange."""

    is_sharded = False

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self.rank, self.world = ranks.rank, ranks.world
        self.local_rank, self.local_world = ranks.local_rank, ranks.local_world
        self.pulse = ranks.pulse

    def vote(self, flags: int) -> int:
        """The flags unchanged."""
        return flags

    def total(self, values: Sequence[float]) -> list[float]:
        """The sums, as if every rank had these values."""
        return [value * self.world for value in values]

    def gather(self, value: T) -> list[T]:
        """Every rank's value; this is still exchanged."""
        return self._ranks.gather(value)

    def wrap(self, model: nn.Module, dtype: torch.dtype = torch.float32) -> nn.Module:
        """The model unchanged."""
        del dtype
        return model

    def begin_step(self) -> None:
        """Does nothing: no rank reduces, so none waits for another in backward."""

    def accumulating(self, model: nn.Module, last: bool) -> AbstractContextManager[object]:
        """The context of any micro batch except the last: DDP reduces nothing."""
        del last
        return self._ranks.accumulating(model, False)

    def reduce_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """Leave them."""

    def agree_on_worst(self, found: torch.Tensor) -> None:
        """Does nothing: there is nothing to agree on."""

    def barrier(self) -> None:
        """Wait for the other ranks, as usual."""
        self._ranks.barrier()

    def align_buffers(self, model: nn.Module) -> None:
        """Leave them."""


class _Given(StepDriver):
    """Hands over batches that are made already. Failures are raised and end the trial."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.batches: Sequence[Batch] = ()

    def fetch(self) -> list[Micro] | Missing:
        batches, self.batches = self.batches, ()
        return share_out(self._parts, [(batch, False) for batch in batches])


class _Steps(NamedTuple):
    given: _Given
    sequence: StepSequence


class Trainee:
    """A model in training: train's parts, built by train's own code and stepped in train's own order."""

    def __init__(self, workload: Workload, variant: Variant, device: torch.device, ranks: Ranks | None = None) -> None:
        self.device = device
        self.variant = variant
        config = workload.config.train
        if config.deterministic:
            be_deterministic(device)
        form = form_of(variant, Precision(variant.precision, "as tried"), grad_clip=config.grad_clip)
        self._parts = build_parts(workload, workload.build_model(), form, device, ranks or Alone())
        self._rates = Rates(workload.config.schedule, self._parts.optimizer, config.steps or _MANY_STEPS)
        self._whole = self._steps(self._parts)
        self._unexchanged: _Steps | None = None
        self._num_steps = 0
        self._staging = Staging(device, self._parts.ranks.local_world)
        self._staging.in_place = True
        self._saved: Content | None = None
        self._parts.model.train()
        # 4 bytes per sample for each of two epochs, whose orders training keeps from the second epoch on
        self.order = Order(num_samples=workload.num_samples, global_batch=1, micro_batch=1, seed=config.seed)
        for epoch in (0, 1):
            self.order.indices(epoch, 0, 1)

    def train(self, batches: Sequence[Batch]) -> float:
        """The loss of one optimizer step over the micro batches in `batches`, including the values that training logs.

        Waits for the device.
        """
        self._run(self._whole, batches)
        losses = self._whole.sequence.read().losses
        self._whole.sequence.stepper.free_gradients()
        return losses[-1]

    @property
    def num_skipped(self) -> int:
        """Steps so far that were skipped because their gradients were not finite; waits for the device."""
        return self._whole.sequence.stepper.num_skipped()

    def step(self, batches: Sequence[Batch], *, exchange: bool = True) -> None:
        """One step without waiting for the device; without `exchange` every rank keeps its gradients to itself."""
        if not exchange and self._unexchanged is None:
            parts = replace(self._parts, ranks=Unexchanged(self._parts.ranks))
            self._unexchanged = self._steps(parts, self._whole.sequence.undo)
        steps = self._whole if exchange else self._unexchanged
        assert steps is not None
        self._run(steps, batches)
        steps.sequence.stepper.free_gradients()

    def end_probation(self) -> None:
        """From now on exchange gradients while backward runs, as training does after its first steps went well."""
        ranks = self._parts.ranks
        if hasattr(ranks, "end_probation"):
            ranks.end_probation()

    def drain(self) -> None:
        """Wait for the device, and forget the losses and times of the steps so far."""
        for steps in (self._whole, self._unexchanged):
            if steps is not None:
                steps.sequence.stepper.losses.take()
                steps.sequence.meter.take()

    def evaluate(self, batch: Batch) -> float:
        """The loss of one batch as evaluation computes it, without gradients."""
        self._whole.sequence.stepper.free_gradients()
        with evaluating(self._parts):
            return float(loss_of(self._parts, batch))

    def _steps(self, parts: Parts, undo: Undo | None = None) -> _Steps:
        given = _Given(parts)
        return _Steps(given, StepSequence(Stepper(parts), self._rates, given, undo))

    def _run(self, steps: _Steps, batches: Sequence[Batch]) -> None:
        steps.given.batches = batches
        steps.sequence.run(self._num_steps)
        self._num_steps += 1

    def capture_checkpoint(self) -> None:
        """Capture weights and state as training does if memory is short: from a GPU as a copy, on a CPU in place."""
        stepper = self._whole.sequence.stepper
        stepper.free_gradients()
        self._saved = capture(stepper, RunProgress(step=1), {}, {}, self._staging)

    @contextmanager
    def writing_checkpoint(self) -> Iterator[None]:
        """Write the captured checkpoint with training's own thread; a copy is written while the body runs."""
        assert self._saved is not None
        with TemporaryFolder("trial") as folder:
            writer = Writer(folder)
            writer.start(self._saved, (), beside=self.device.type != "cpu")
            self._saved = None
            try:
                yield
            finally:
                outcome = writer.collect(wait=True)
        if isinstance(outcome, OSError):
            raise outcome
