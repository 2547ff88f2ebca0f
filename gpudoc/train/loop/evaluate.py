"""The eval set's mean loss in the precision of training; obeys a stop, and survives an out-of-memory error."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from gpudoc.errors import GpudocError
from gpudoc.process.shortage import is_out_of_memory
from gpudoc.train.blame import in_data, in_model
from gpudoc.train.data.draws import Generators
from gpudoc.train.data.feed import Feeds
from gpudoc.train.data.order import Order
from gpudoc.train.ranks.distributed import abandoned
from gpudoc.train.ranks.protocol import OOM, STOP
from gpudoc.train.ranks.pulse import EVALUATING
from gpudoc.train.step.step import Losses, Parts
from gpudoc.train.stop import Stop
from gpudoc.workload.batch import Batch, shapes, to_device


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationOutcome:
    """`loss` is None if a stop came first; `shrunk` lists (from, to, shapes) of every out-of-memory error."""

    loss: float | None
    num_samples: int
    micro_batch: int
    shrunk: tuple[tuple[int, int, str], ...] = ()
    figures: Mapping[str, float] = field(default_factory=dict)


class TooLarge(Exception):  # noqa: N818
    """Even a single sample does not fit; the argument names its shapes."""


def evaluate(parts: Parts, feeds: Feeds, order: Order, stop: Stop) -> EvaluationOutcome:
    """The item-weighted mean loss over one epoch of `order`; leaves the model's mode and the random state unchanged."""
    shrunk: list[tuple[int, int, str]] = []
    with evaluating(parts):
        while True:
            attempt = _once(parts, feeds, order, stop)
            if not isinstance(attempt, str):
                break
            smaller = max(1, order.micro_batch // 2)
            if order.micro_batch == 1:
                raise TooLarge(attempt)
            shrunk.append((order.micro_batch, smaller, attempt))
            order = order.with_micro_batch(smaller)
            gc.collect()
            if parts.device.type == "cuda":
                torch.cuda.empty_cache()
    return EvaluationOutcome(
        loss=attempt, num_samples=order.num_samples, micro_batch=order.micro_batch, shrunk=tuple(shrunk)
    )


@contextmanager
def evaluating(parts: Parts) -> Iterator[None]:
    """The model in eval mode and without gradients; restores its modes and the random state afterwards."""
    generators = Generators(parts.device)
    before = generators.snapshot()
    modes = [(module, module.training) for module in parts.model.modules()]
    parts.model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, mode in modes:
            module.training = mode
        generators.restore(before)


def _once(parts: Parts, feeds: Feeds, order: Order, stop: Stop) -> float | str | None:
    """The mean loss, None after a stop, or the shapes of the batch that did not fit."""
    feed = feeds.open(order, 0, order.steps_per_epoch)
    losses = Losses(parts.device)
    items: list[float] = []
    try:
        for chunk in order.walk(0, order.steps_per_epoch):
            parts.ranks.pulse.now(EVALUATING)
            flags, seen = 0, ""
            batch = None
            try:
                batch = feed.take(chunk)
                flags = STOP if stop.asked or batch is None else 0
            except Exception as problem:
                seen = _memory_alone(in_data(problem, chunk.indices), problem)
                flags = OOM
            if parts.ranks.is_sharded:
                # forward waits for every rank, so ranks cannot vote after one has failed in it
                flags = parts.ranks.vote(flags)
            if not flags:
                try:
                    losses.add(loss_of(parts, batch))
                    items.append(0.0 if chunk.weightless else parts.step.count_items(batch))
                except Exception as problem:
                    _memory_alone(in_model(problem, batch, False), problem)
                    if parts.ranks.is_sharded:
                        raise abandoned("evaluating") from problem
                    flags = OOM
            if parts.ranks.world > 1:
                flags = parts.ranks.vote(flags)
            if flags & STOP:
                return None
            if flags & OOM:
                return seen or shapes(batch)
        weights = torch.tensor(items, dtype=torch.float64)
        values = torch.tensor(losses.take(), dtype=torch.float64)
        # a weightless batch's loss may be anything, and nothing times NaN is NaN
        summed = float((values[weights > 0] * weights[weights > 0]).sum())
        total, count = parts.ranks.total([summed, float(weights.sum())])
        return total / count
    finally:
        feed.close()


def _memory_alone(told: GpudocError, problem: Exception) -> str:
    """The message of a `problem` that is a lack of memory; raises `told` for any other."""
    if not is_out_of_memory(problem):
        raise told from problem
    return told.message


def loss_of(parts: Parts, batch: Batch) -> torch.Tensor:
    """The mean loss over one batch on the host, as evaluation computes it; called inside `evaluating`."""
    moved = to_device(batch, parts.device, channels_last=parts.channels_last)
    parts.begin()
    with parts.precision.autocast(parts.device):
        loss = parts.step.loss(parts.forward, moved).detach()
    return loss.clone() if parts.replays_graphs else loss
