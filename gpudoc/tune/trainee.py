"""The training that a trial runs: train's own step, optimizer choice, checkpoint and ranks, under one variant."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from gpudoc.train import checkpoint
from gpudoc.train.build import may_fuse
from gpudoc.train.order import Order
from gpudoc.train.precision import Precision
from gpudoc.train.ranks import Alone, Ranks
from gpudoc.train.state import Progress, capture
from gpudoc.train.step import Micro, Parts, Stepper
from gpudoc.train.undo import Undo
from gpudoc.train.writer import Writer
from gpudoc.tune.trial import Variant
from gpudoc.workload import recompute
from gpudoc.workload.batch import Batch, to_device
from gpudoc.workload.build import Workload


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
        self._undo = Undo(model, device)
        self._saved: checkpoint.Content | None = None
        seed = workload.config.train.seed
        # 36 bytes a sample for each of the two epochs whose order training keeps from the second epoch on
        self._order = Order(num_samples=workload.num_samples, global_batch=1, micro_batch=1, seed=seed)
        for epoch in (0, 1):
            self._order.indices(epoch, 0, 1)

    def train(self, batches: Sequence[Batch]) -> None:
        """One optimizer step over the micro batches of `batches`."""
        self._stepper.parts.model.train()
        self._undo.mark()
        self._stepper.run([Micro(batch, 1.0 / len(batches)) for batch in batches])
        self._stepper.take_losses()

    def evaluate(self, batch: Batch) -> float:
        """The loss of one batch as evaluation computes it, without gradients."""
        parts = self._stepper.parts
        parts.model.eval()
        with torch.no_grad(), parts.precision.autocast(parts.device):
            moved = to_device(batch, parts.device, channels_last=parts.channels_last)
            return float(parts.step.loss(parts.forward, moved))

    def capture_checkpoint(self) -> None:
        """Copy weights and state to the host, as training does; the copy lives while the next steps run."""
        progress = Progress(step=1)
        self._saved = capture(self._stepper, progress, {}, {})

    @contextmanager
    def writing_checkpoint(self) -> Iterator[None]:
        """Inside, the copy is written to a temporary folder by training's own thread; afterwards it is dropped."""
        assert self._saved is not None
        with tempfile.TemporaryDirectory(prefix="gpudoc-trial-") as folder:
            writer = Writer(Path(folder))
            writer.start(self._saved, ())
            self._saved = None
            try:
                yield
            finally:
                outcome = writer.collect(wait=True)
        if isinstance(outcome, OSError):
            raise outcome
