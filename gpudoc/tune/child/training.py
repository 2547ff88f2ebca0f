"""The training that a trial runs: train's own step, optimizer choice, checkpoint and ranks, under one variant."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import torch
from torch import nn

from gpudoc.train.data.order import Order
from gpudoc.train.ranks.protocol import Alone, Ranks
from gpudoc.train.start.build import may_fuse
from gpudoc.train.state import checkpoint
from gpudoc.train.state.capture import Progress, capture
from gpudoc.train.state.staging import Staging
from gpudoc.train.state.writer import Writer
from gpudoc.train.step.precision import Precision
from gpudoc.train.step.step import Micro, Parts, Stepper
from gpudoc.train.step.undo import Undo
from gpudoc.tune.trial.messages import Variant
from gpudoc.workload import recompute
from gpudoc.workload.batch import Batch, to_device
from gpudoc.workload.build import Workload

T = TypeVar("T")


class Unexchanged:
    """Ranks whose gradients stay where they are: what a step costs without the exchange."""

    is_sharded = False

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self.rank, self.world = ranks.rank, ranks.world
        self.local_rank, self.local_world = ranks.local_rank, ranks.local_world

    def vote(self, flags: int) -> int:
        """The flags as they are."""
        return flags

    def total(self, values: Sequence[float]) -> list[float]:
        """The values as they are."""
        return list(values)

    def gather(self, value: T) -> list[T]:
        """Every rank's value, exchanged after all."""
        return self._ranks.gather(value)

    def wrap(self, model: nn.Module, dtype: torch.dtype = torch.float32) -> nn.Module:
        """The model as it is."""
        del dtype
        return model

    def begin_step(self) -> None:
        """As for any step."""
        self._ranks.begin_step()

    def accumulating(self, model: nn.Module, last: bool) -> AbstractContextManager[object]:
        """As around any micro batch but the last: DDP reduces nothing."""
        del last
        return self._ranks.accumulating(model, False)

    def reduce_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """Leave them."""

    def agree_on_worst(self, found: torch.Tensor) -> None:
        """Nothing to agree on."""

    def barrier(self) -> None:
        """Wait for the others after all."""
        self._ranks.barrier()

    def align_buffers(self, model: nn.Module) -> None:
        """Leave them."""


class Trainee:
    """A model in training; every method leaves the peak of memory that the same thing leaves in `gpudoc train`."""

    def __init__(self, workload: Workload, variant: Variant, device: torch.device, ranks: Ranks | None = None) -> None:
        self.device = device
        self.variant = variant
        ranks = ranks or Alone()
        model = workload.build_model().to(device)
        if variant.channels_last:
            model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if variant.activation_checkpointing:
            recompute.apply(model)
        forward = ranks.wrap(model)
        fused = {"fused": True} if variant.fused and may_fuse(workload, model, device) else {}
        parts = Parts(
            model=model,
            forward=torch.compile(forward) if variant.compile else forward,
            optimizer=workload.build_optimizer(model, fused),
            step=workload.step().to(device),
            device=device,
            precision=Precision(variant.precision, "as tried"),
            grad_clip=workload.config.train.grad_clip,
            channels_last=variant.channels_last,
            ranks=ranks,
        )
        self._stepper = Stepper(parts)
        self._unexchanged: Stepper | None = None
        self._undo = Undo(model, device)
        self._saved: checkpoint.Content | None = None
        seed = workload.config.train.seed
        # 4 bytes a sample for each of the two epochs whose order training keeps from the second epoch on
        self._order = Order(num_samples=workload.num_samples, global_batch=1, micro_batch=1, seed=seed)
        for epoch in (0, 1):
            self._order.indices(epoch, 0, 1)

    def train(self, batches: Sequence[Batch]) -> None:
        """One optimizer step over the micro batches of `batches`; returns when the device is done."""
        self.step(batches)
        self._stepper.take_losses()

    def step(self, batches: Sequence[Batch], *, exchange: bool = True) -> None:
        """The same without waiting for the device; without `exchange` every rank keeps to itself."""
        stepper = self._stepper if exchange else self._alone()
        ranks = stepper.parts.ranks
        stepper.parts.model.train()
        if ranks.world > 1:
            # as the loop does: items are added up before a step, and after backward all say whether it went well
            ranks.total([float(len(batches))])
        self._undo.mark()
        stepper.backward([Micro(batch, 1.0 / len(batches)) for batch in batches])
        if ranks.world > 1:
            ranks.vote(0)
        stepper.update()
        stepper.free_gradients()

    def end_probation(self) -> None:
        """From now on exchange gradients while backward runs, as training does when its first steps went well."""
        ranks = self._stepper.parts.ranks
        if hasattr(ranks, "end_probation"):
            ranks.end_probation()

    def drain(self) -> None:
        """Wait for the device and forget the losses of the steps so far."""
        for stepper in (self._stepper, self._unexchanged):
            if stepper is not None:
                stepper.take_losses()

    def _alone(self) -> Stepper:
        if self._unexchanged is None:
            parts = self._stepper.parts
            self._unexchanged = Stepper(replace(parts, ranks=Unexchanged(parts.ranks)))
        return self._unexchanged

    def evaluate(self, batch: Batch) -> float:
        """The loss of one batch as evaluation computes it, without gradients."""
        parts = self._stepper.parts
        self._stepper.free_gradients()
        parts.model.eval()
        with torch.no_grad(), parts.precision.autocast(parts.device):
            moved = to_device(batch, parts.device, channels_last=parts.channels_last)
            return float(parts.step.loss(parts.forward, moved))

    def capture_checkpoint(self) -> None:
        """Take weights and state as training does where memory is short: from a GPU as a copy, on a CPU in place."""
        staging = Staging(torch.device("cpu"))
        staging.in_place = True
        self._stepper.free_gradients()
        self._saved = capture(self._stepper, Progress(step=1), {}, {}, staging)

    @contextmanager
    def writing_checkpoint(self) -> Iterator[None]:
        """Write what was captured by training's own thread; what is a copy is being written while the inside runs."""
        assert self._saved is not None
        with tempfile.TemporaryDirectory(prefix="gpudoc-trial-") as folder:
            writer = Writer(Path(folder))
            writer.start(self._saved, (), beside=self._stepper.parts.device.type != "cpu")
            self._saved = None
            try:
                yield
            finally:
                outcome = writer.collect(wait=True)
        if isinstance(outcome, OSError):
            raise outcome
