"""The training that a trial runs: the workload's model, optimizer and step under one variant, on one device."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from gpudoc.tune.trial import Variant
from gpudoc.workload.batch import Batch, to_device
from gpudoc.workload.build import Workload

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Trainee:
    """A model in training; every method works on `device` and leaves the peak of memory that training leaves."""

    def __init__(self, workload: Workload, variant: Variant, device: torch.device, ranks: int) -> None:
        self.device = device
        self.variant = variant
        self._grad_clip = workload.config.train.grad_clip
        self._step = workload.step().to(device)
        self._model = workload.build_model().to(device)
        if variant.channels_last:
            self._model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._optimizer = workload.build_optimizer(self._model)
        self._scaler = torch.amp.GradScaler(device.type) if variant.precision == "fp16" else None
        self._callable: nn.Module = self._wrap(ranks)

    def _wrap(self, ranks: int) -> nn.Module:
        model = self._model
        if ranks > 1:
            ids = [self.device.index] if self.device.type == "cuda" else None
            model = nn.parallel.DistributedDataParallel(model, device_ids=ids)
        if self.variant.compile:
            model = torch.compile(model)  # type: ignore[assignment]
        return model

    def train(self, batches: Sequence[Batch]) -> float:
        """One optimizer step over the micro batches of `batches`; returns the loss, which waits for the device."""
        self._callable.train()
        self._optimizer.zero_grad(set_to_none=True)
        total = 0.0
        for batch in batches:
            loss = self._loss(batch) / len(batches)
            (self._scaler.scale(loss) if self._scaler else loss).backward()  # type: ignore[no-untyped-call]
            total += float(loss.detach())
        if self._scaler:
            self._scaler.unscale_(self._optimizer)
        if self._grad_clip is not None:
            nn.utils.clip_grad_norm_(self._model.parameters(), self._grad_clip)
        if self._scaler:
            self._scaler.step(self._optimizer)
            self._scaler.update()
        else:
            self._optimizer.step()
        return total

    def evaluate(self, batch: Batch) -> float:
        """The loss of one batch as evaluation computes it, without gradients."""
        self._callable.eval()
        with torch.no_grad():
            return float(self._loss(batch))

    def save_checkpoint(self) -> None:
        """Write weights and optimizer state to a temporary file, as training does, and remove it."""
        with tempfile.TemporaryDirectory(prefix="gpudoc-trial-") as folder:
            state = {"model": self._model.state_dict(), "optimizer": self._optimizer.state_dict()}
            torch.save(state, Path(folder) / "state.pt")

    def _loss(self, batch: Batch) -> torch.Tensor:
        moved = to_device(batch, self.device, channels_last=self.variant.channels_last)
        dtype = _DTYPES.get(self.variant.precision)
        context = torch.autocast(self.device.type, dtype=dtype) if dtype else contextlib.nullcontext()
        with context:
            return self._step.loss(self._callable, moved)
