"""The step of a cfg.yaml as a recipe: what training runs, on inputs without data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.data import default_collate

from gpudoc.errors import GpudocError
from gpudoc.plan.settings import Settings
from gpudoc.plan.tracing import Recipe
from gpudoc.workload import recompute
from gpudoc.workload.batch import map_tensors, num_bytes, tensors_in
from gpudoc.workload.build import Workload

# enough to meet a long sample, few enough to read from disk at once
_SAMPLES_LOOKED_AT = 64

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass
class _State:
    model: nn.Module
    optimizer: torch.optim.Optimizer
    loss: object


def workload_recipe(workload: Workload, settings: Settings) -> Recipe:
    """The recipe of `workload` under `settings`; GpudocError where the data set gives no usable sample."""
    batch = _batches(workload, settings)
    clip = workload.config.train.grad_clip
    step = workload.step()

    def build() -> _State:
        model = workload.build_model().train()
        if settings.activation_checkpointing and recompute.apply(model) == 0:
            raise GpudocError("activation checkpointing: the model has no repeated block to recompute")
        if settings.channels_last:
            model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        overrides = {"fused": True} if settings.fused else None
        return _State(model, workload.build_optimizer(model, overrides), step)

    def train(state: _State, inputs: object) -> None:
        state.optimizer.zero_grad(set_to_none=True)
        # beyond the second micro batch nothing new is kept: its gradients are added to the first's
        for _ in range(min(settings.accumulation, 2)):
            with _autocast(settings):
                loss = step.loss(state.model, inputs)
            (loss / settings.accumulation if settings.accumulation > 1 else loss).backward()  # type: ignore[no-untyped-call]
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(state.model.parameters(), clip)
        state.optimizer.step()

    def evaluate(state: _State, inputs: object) -> None:
        state.model.eval()
        with _autocast(settings):
            step.loss(state.model, inputs)

    has_eval = workload.config.data.eval is not None
    return Recipe(build=build, batch=batch, step=train, evaluate=evaluate if has_eval else None, like=settings.like)


def _autocast(settings: Settings) -> AbstractContextManager[object]:
    dtype = _DTYPES.get(settings.precision)
    return nullcontext() if dtype is None else torch.autocast("cpu", dtype)


def _batches(workload: Workload, settings: Settings) -> Callable[[int], object]:
    """A function from a batch size to empty inputs, shaped like the longest of the samples looked at."""
    sample = _longest(workload.dataset)
    collate: Callable[[list[Any]], object] = workload.collate or default_collate
    two, three = collate([sample] * 2), collate([sample] * 3)
    shapes = [
        [(a, b - a) for a, b in zip(small.shape, large.shape, strict=True)]
        for small, large in zip(tensors_in(two), tensors_in(three), strict=True)
    ]

    def make(batch: int) -> object:
        following = iter(shapes)

        def fill(tensor: torch.Tensor) -> torch.Tensor:
            shape = [at_two + each * (batch - 2) for at_two, each in next(following)]
            empty = torch.zeros(shape, dtype=tensor.dtype)
            if settings.channels_last and empty.dim() == 4:
                return empty.to(memory_format=torch.channels_last)
            return empty

        return map_tensors(two, fill)

    return make


def _longest(dataset: object) -> object:
    if isinstance(dataset, torch.utils.data.IterableDataset):
        return next(iter(dataset))
    length = len(dataset)  # type: ignore[arg-type]
    places = sorted({round(i * (length - 1) / max(1, _SAMPLES_LOOKED_AT - 1)) for i in range(_SAMPLES_LOOKED_AT)})
    samples: Sequence[object] = [dataset[place] for place in places if place < length]  # type: ignore[index]
    return max(samples, key=_size)


def _size(sample: object) -> int:
    try:
        return num_bytes(default_collate([sample]))
    except (TypeError, RuntimeError):
        return num_bytes(sample)
