"""The step of a cfg.yaml as a recipe: training's own step, on inputs without data."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import nn
from torch.utils.data import default_collate

from gpudoc.errors import GpudocError
from gpudoc.plan.settings import PlanSettings
from gpudoc.plan.tracing import Recipe
from gpudoc.train.data.draws import Generators, Snapshot
from gpudoc.train.loop.evaluate import loss_of
from gpudoc.train.ranks.protocol import Alone, Ranks
from gpudoc.train.start.parts import StepForm, build_parts, may_fuse
from gpudoc.train.step.precision import Name, Precision
from gpudoc.train.step.schedule import Rates
from gpudoc.train.step.sequence import StepDriver, StepSequence
from gpudoc.train.step.step import Micro, Stepper
from gpudoc.workload import recompute
from gpudoc.workload.batch import map_tensors, num_bytes, tensors_in
from gpudoc.workload.build import Workload

# enough to include a long sample, few enough to read quickly from disk
_SAMPLES_LOOKED_AT = 64


@dataclass
class _State:
    model: nn.Module
    optimizer: torch.optim.Optimizer
    loss: object
    train: Callable[[object], None]
    evaluate: Callable[[object], object]


def workload_recipe(workload: Workload, settings: PlanSettings) -> Recipe:
    """The recipe of `workload` under `settings`: train's parts, stepped in train's order, on inputs without data.

    GpudocError if the data set gives no usable sample.
    """
    # a trial on a GPU evaluates in any case
    has_eval = workload.config.data.eval is not None or settings.like == "cuda"
    before = Generators().snapshot()
    return Recipe(
        build=lambda: _build(workload, settings, before),
        batch=_batches(workload, settings),
        step=lambda state, inputs: state.train(inputs),
        evaluate=(lambda state, inputs: state.evaluate(inputs)) if has_eval else None,
        like=settings.like,
        num_samples=None if workload.is_stream else workload.num_samples,
        world=settings.ranks,
    )


class _Inputs(StepDriver):
    """The inputs of a step as micro batches, with a random state that was taken before the trace."""

    def __init__(self, accumulation: int, before: Snapshot) -> None:
        self._before = before
        self._share = 1.0 / accumulation
        # after the second micro batch no new memory is kept: gradients are added to the first's
        self._count = min(accumulation, 2)
        self.inputs: object = None

    def fetch(self) -> list[Micro]:
        """The same inputs once or twice."""
        inputs, self.inputs = self.inputs, None
        return [Micro(inputs, self._share)] * self._count

    def snapshot(self) -> Snapshot:
        """The same in every step."""
        return self._before


def _build(workload: Workload, settings: PlanSettings, before: Snapshot) -> _State:
    """Everything that a step works on. Fake tensors are on the CPU, even if they follow CUDA's kernels."""
    model, device = workload.build_model(), torch.device("cpu")
    if settings.activation_checkpointing is True and not recompute.can_recompute(model):
        raise GpudocError("activation checkpointing: the model has no repeated block to recompute")
    form = StepForm(
        precision=Precision(cast(Name, settings.precision), "as planned"),
        activation_checkpointing=settings.activation_checkpointing,
        channels_last=settings.channels_last,
        fused=settings.fused and may_fuse(workload, model, torch.device(settings.like)),
        grad_clip=workload.config.train.grad_clip,
    )
    parts = build_parts(workload, model.train(), form, device, _ranks(settings))
    given = _Inputs(settings.accumulation, before)
    rates = Rates(workload.config.schedule, parts.optimizer, 1 << 20)
    sequence = StepSequence(Stepper(parts), rates, given)
    steps = itertools.count()

    def train(inputs: object) -> None:
        number = next(steps)
        if number:
            # only the first updates are tried beforehand, and this step stands for all later ones
            sequence.guard.release()
        given.inputs = inputs
        sequence.run(number)
        # a logger would have read the losses by the next step
        sequence.stepper.losses.take()

    def evaluate(inputs: object) -> object:
        sequence.stepper.free_gradients()
        model.eval()
        return loss_of(parts, inputs)

    return _State(parts.model, parts.optimizer, parts.step, train, evaluate)


def _ranks(settings: PlanSettings) -> Ranks:
    if settings.ranks == 1:
        return Alone()
    from gpudoc.plan.spread import Spread

    return Spread(settings.ranks, settings.fsdp)


def _batches(workload: Workload, settings: PlanSettings) -> Callable[[int], object]:
    """A function from a batch size to empty inputs, with the shape of the longest of some samples."""
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
