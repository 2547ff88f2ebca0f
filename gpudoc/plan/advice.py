"""What would make it fit, cheapest first: each change planned, not guessed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from gpudoc.errors import GpudocError
from gpudoc.plan.from_workload import workload_recipe
from gpudoc.plan.need import Need
from gpudoc.plan.planning import Plan, plan_recipe
from gpudoc.plan.settings import Settings
from gpudoc.plan.tape import Block, Kind, Phase
from gpudoc.plan.target import Advice, Target
from gpudoc.progress import Progress
from gpudoc.workload.build import Workload

# with full sharding each GPU keeps its part of these; a block is gathered whole while it runs
_RANKS = (2, 4, 8)
_SHARDED = (Kind.WEIGHTS, Kind.GRADIENTS, Kind.OPTIMIZER)


class Variants:
    """The plans of one workload under different settings on CUDA, each made once."""

    def __init__(self, workload: Workload, progress: Progress) -> None:
        self._workload = workload
        self._progress = progress
        self._plans: dict[Settings, Plan | None] = {}

    def plan(self, *, precision: str) -> Plan:
        """The plan with nothing changed but the precision; GpudocError where it cannot be made."""
        found = self.plan_or_none(Settings(like="cuda", precision=precision))
        assert found is not None
        return found

    def first(self) -> Plan:
        """The first plan that was made."""
        return next(plan for plan in self._plans.values() if plan is not None)

    def plan_or_none(self, settings: Settings) -> Plan | None:
        """The plan under `settings`, or None where the model does not allow them."""
        if settings not in self._plans:
            self._progress.say(f"planning {_words(settings)}")
            try:
                recipe = workload_recipe(self._workload, settings)
                self._plans[settings] = plan_recipe(recipe, progress=self._progress)
            except GpudocError:
                if not settings.activation_checkpointing:
                    raise
                self._plans[settings] = None
        return self._plans[settings]


def advise(variants: Variants, target: Target, precision: str, reference: int) -> tuple[Advice, ...]:
    """Changes that let more fit, cheapest first, each with its peak at the reference batch or the largest below it."""
    base = Settings(like="cuda", precision=precision)
    now = Need.on(variants.plan(precision=precision), target).largest_batch()
    found = [_accumulated(variants, target, base, reference)] if now else []
    for change, settings in _changes(base):
        plan = variants.plan_or_none(settings)
        found.append(None if plan is None else _judge(plan, target, reference, change))
    better = [advice for advice in found if advice is not None and (advice.largest_batch > now or advice is found[0])]
    if not any(advice.largest_batch >= reference for advice in better):
        better += _over_gpus(variants, target, base, reference)
    return tuple(better)


def _accumulated(variants: Variants, target: Target, base: Settings, reference: int) -> Advice | None:
    """Smaller micro batches with the same global batch; their gradients stay while the next one runs."""
    plan = variants.plan_or_none(replace(base, accumulation=2))
    largest = 0 if plan is None else Need.on(plan, target).largest_batch()
    if plan is None or largest == 0:
        return None
    change = f"micro batch {largest}, accumulation {-(-reference // largest)}"
    return _judge(plan, target, largest, change)


def _over_gpus(variants: Variants, target: Target, base: Settings, reference: int) -> list[Advice]:
    """The fewest GPUs that hold a sharded model, plain, or else with everything recomputed."""
    for settings, words in ((base, ""), (replace(base, activation_checkpointing=True), " and the above")):
        plan = variants.plan_or_none(settings)
        for ranks in _RANKS if plan is not None else ():
            assert plan is not None
            advice = _judge(_sharded(plan, ranks), target, reference, f"{ranks} such GPUs with FSDP{words}")
            if advice is not None:
                return [advice]
    return []


def _changes(base: Settings) -> Iterator[tuple[str, Settings]]:
    if base.precision == "fp32":
        yield "precision bf16", replace(base, precision="bf16")
    yield "activation checkpointing", replace(base, activation_checkpointing=True)
    if base.precision == "fp32":
        yield (
            "precision bf16 and activation checkpointing",
            replace(base, precision="bf16", activation_checkpointing=True),
        )


def _judge(plan: Plan, target: Target, batch: int, change: str) -> Advice | None:
    need = Need.on(plan, target)
    largest = need.largest_batch()
    if largest < 1:
        return None
    return Advice(change=change, peak_bytes=need.peak_bytes(min(batch, largest)), largest_batch=largest)


def _sharded(plan: Plan, ranks: int) -> Plan:
    """The plan of one of `ranks` GPUs under full sharding: estimated, without its communication buffers."""
    memory = plan.memory
    shared = np.array([block.kind in _SHARDED or block.phase is Phase.OPTIMIZER for block in memory.blocks])
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
            unit = unit_of(block.module)
            by_module[unit] = by_module.get(unit, 0) + int(size)
    # the next block is gathered while one runs
    return 2 * max(by_module.values(), default=0)


def unit_of(module: str) -> str:
    """What full sharding gathers at once: the numbered block that `module` lies in, else the module itself."""
    parts = module.split(".")
    numbered = next((place for place, part in enumerate(parts) if part.isdigit()), len(parts) - 1)
    return ".".join(parts[: numbered + 1])


def _words(settings: Settings) -> str:
    words = [settings.precision]
    words += ["activation checkpointing"] if settings.activation_checkpointing else []
    words += ["accumulation"] if settings.accumulation > 1 else []
    return ", ".join(words)
