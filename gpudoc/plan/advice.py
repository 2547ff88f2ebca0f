"""What would make it fit, cheapest first: each change planned, not guessed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from gpudoc.errors import GpudocError
from gpudoc.plan.from_workload import Settings, workload_recipe
from gpudoc.plan.planning import Plan, plan_recipe
from gpudoc.plan.tape import Block, Kind
from gpudoc.plan.target import Advice, Need, Target
from gpudoc.progress import Progress
from gpudoc.workload.build import Workload

# with full sharding each GPU keeps its part of these; a block is gathered whole while it runs
_SHARDED = (Kind.WEIGHTS, Kind.GRADIENTS, Kind.OPTIMIZER)


class Variants:
    """The plans of one workload under different settings on CUDA, each made once."""

    def __init__(self, workload: Workload, progress: Progress) -> None:
        self._workload = workload
        self._progress = progress
        self._plans: dict[Settings, Plan | None] = {}
        self._first: Settings | None = None

    def plan(self, **changes: object) -> Plan:
        """The plan under `changes`; without any, the first one asked for. GpudocError where it cannot be made."""
        settings = self._first if not changes and self._first else replace(Settings(like="cuda"), **_same(changes))  # type: ignore[arg-type]
        found = self.plan_or_none(settings)
        if found is None:
            raise GpudocError("the model has no repeated block to recompute")
        return found

    def plan_or_none(self, settings: Settings) -> Plan | None:
        """The plan under `settings`, or None where the model does not allow them."""
        if settings not in self._plans:
            self._progress.say(f"planning {_words(settings)}")
            try:
                self._plans[settings] = plan_recipe(workload_recipe(self._workload, settings), progress=self._progress)
            except GpudocError:
                if not settings.activation_checkpointing and not settings.fused:
                    raise
                self._plans[settings] = None
        self._first = self._first or settings
        return self._plans[settings]


def advise(variants: Variants, target: Target, precision: str, reference: int) -> tuple[Advice, ...]:
    """Changes that let more samples fit than now, cheapest first, each with its peak at the reference batch or below."""
    base = Settings(like="cuda", precision=precision)
    now = Need(variants.plan(precision=precision), target).largest_batch()
    found = []
    if 1 <= now < reference:
        parts = -(-reference // now)
        plan = variants.plan_or_none(replace(base, accumulation=2))
        if plan is not None and (advice := _judge(plan, target, now, f"micro batch {now}, accumulation {parts}")):
            found.append(advice)
    for change, settings in _changes(base):
        plan = variants.plan_or_none(settings)
        if plan is None:
            continue
        advice = _judge(plan, target, reference, change)
        if advice is not None and advice.largest_batch > now:
            found.append(advice)
    sharded = _judge(_sharded(variants.plan(precision=precision), 2), target, reference, "two such GPUs with FSDP")
    if sharded is not None and sharded.largest_batch > now:
        found.append(sharded)
    return tuple(found)


def _changes(base: Settings) -> Iterator[tuple[str, Settings]]:
    if base.precision == "fp32":
        yield "precision bf16", replace(base, precision="bf16")
    yield "fused optimizer", replace(base, fused=True)
    yield "activation checkpointing", replace(base, activation_checkpointing=True)
    both = replace(base, activation_checkpointing=True, fused=True)
    if base.precision == "fp32":
        both = replace(both, precision="bf16")
        yield "precision bf16, activation checkpointing and fused optimizer", both
    else:
        yield "activation checkpointing and fused optimizer", both


def _judge(plan: Plan, target: Target, batch: int, change: str) -> Advice | None:
    need = Need(plan, target)
    largest = need.largest_batch()
    if largest < 1:
        return None
    return Advice(change=change, peak_bytes=need.peak_bytes(min(batch, largest)), largest_batch=largest)


def _sharded(plan: Plan, ranks: int) -> Plan:
    """The plan of one of `ranks` GPUs under full sharding: estimated, without its communication buffers."""
    memory = plan.memory
    shared = np.array([block.kind in _SHARDED for block in memory.blocks])
    points = tuple(np.where(shared, -(-point // ranks), point) for point in memory.points)
    gathered = _largest_module(memory.blocks, memory.points[0])
    blocks = (*memory.blocks, Block(gathered, "all_gather", "", memory.blocks[0].phase))
    points = tuple(np.append(point, gathered) for point in points)
    events = np.concatenate([[len(blocks) - 1], memory.events])
    return replace(plan, memory=replace(memory, blocks=blocks, points=points, events=events))


def _largest_module(blocks: tuple[Block, ...], sizes: object) -> int:
    assert isinstance(sizes, np.ndarray)
    by_module: dict[str, int] = {}
    for block, size in zip(blocks, sizes, strict=True):
        if block.kind is Kind.WEIGHTS:
            top = ".".join(block.module.split(".")[:2])
            by_module[top] = by_module.get(top, 0) + int(size)
    # the next block is gathered while one runs
    return 2 * max(by_module.values(), default=0)


def _same(changes: dict[str, object]) -> dict[str, object]:
    return changes


def _words(settings: Settings) -> str:
    words = [settings.precision]
    words += ["activation checkpointing"] if settings.activation_checkpointing else []
    words += ["fused optimizer"] if settings.fused else []
    words += ["accumulation"] if settings.accumulation > 1 else []
    return ", ".join(words)
