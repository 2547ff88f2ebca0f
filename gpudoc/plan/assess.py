"""The answers of one workload for several targets: traced once per precision and change, replayed per target."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from gpudoc.errors import GpudocError
from gpudoc.knowledge.cards import context_bytes
from gpudoc.plan.advice import Variants, advise
from gpudoc.plan.roofline import least_step_s
from gpudoc.plan.settings import Settings
from gpudoc.plan.target import Need, Target, TargetAnswer, TargetsResult, parse_target
from gpudoc.progress import SILENT, Progress
from gpudoc.workload.build import Workload

# cuDNN's workspaces and rules that could not be checked on a GPU: what was traced, and what had to be run on the CPU
_TRACED_DOUBT, _PROBED_DOUBT = 0.05, 0.20
# batches beyond the one found that are tried too, each a sixty-fourth further
_BEYOND = 8


def assess_targets(workload: Workload, names: Sequence[str], *, progress: Progress = SILENT) -> TargetsResult:
    """The answers of `workload` for `names`; traces once per precision and change, replays per target."""
    targets = [parse_target(name) for name in names if name.strip()]
    if not targets:
        raise GpudocError("no target named", hint='for example --target "RTX 3090,24GiB"')
    variants = Variants(workload, progress)
    reference = workload.config.train.reference_batch
    wanted = workload.config.train.precision
    answers = []
    for number, target in enumerate(targets):
        progress.advance(number, len(targets), f"planning for {target.name}")
        precision = target.precision if wanted == "auto" else wanted
        settings = Settings(like="cuda", precision=precision)
        found = answer(variants, target, settings)
        advice = advise(variants, target, precision, reference) if found.largest_batch < reference else ()
        answers.append(replace(found, advice=advice))
    plan = variants.first()
    return TargetsResult(
        name=workload.name,
        num_parameters=plan.num_parameters,
        reference_batch=reference,
        probed=plan.probed,
        notes=tuple(f"{note.text} at {note.place}" for note in plan.memory.notes),
        answers=tuple(answers),
    )


def answer(variants: Variants, target: Target, settings: Settings) -> TargetAnswer:
    """What `target` can do under `settings`, without advice; GpudocError where the model does not allow them."""
    plan = variants.plan_or_none(settings)
    if plan is None:
        raise GpudocError("activation checkpointing: the model has no repeated block to recompute")
    need = Need(plan, target)
    largest = need.largest_batch()
    at = max(1, largest)
    peak = need.peak_bytes(at)
    doubt = _PROBED_DOUBT if plan.probed else _TRACED_DOUBT
    asked = plan.memory.peak_bytes(at) + context_bytes(target.capability)
    return TargetAnswer(
        target=target,
        precision=settings.precision,
        largest_batch=largest,
        largest_batch_interval=_interval(need, largest, doubt),
        peak_bytes=peak,
        peak_bytes_at_1=need.peak_bytes(1),
        bytes_per_sample=round(plan.memory.bytes_per_sample(at)),
        interval=(int(asked * (1 - doubt)), int(peak * (1 + doubt))),
        composition=plan.memory.composition(at).by_kind,
        least_step_s=None if target.card is None else least_step_s(plan.work.at(at), target.card),
    )


def _interval(need: Need, largest: int, doubt: float) -> tuple[int, int]:
    """Between which batches the largest is expected: what fits into less and into more memory, and beyond a hole.

    Fragmentation leaves holes, where a batch fails although a larger one fits; a search ends at the edge of some hole.
    """
    # a share of the memory is at least that share of the batch, for some of the memory does not grow with it
    shares = [int(largest * (1 - doubt)), math.ceil(largest * (1 + doubt))]
    found = [largest, *shares, need.largest_batch(1 - doubt), need.largest_batch(1 + doubt)]
    limit, step = need.target.allocator_bytes, max(1, largest // 64)
    beyond = [largest + step * number for number in range(1, _BEYOND + 1)]
    fitting = [batch for batch in beyond if limit > 0 and need.replay(batch, limit).fits]
    return min(found), max(*found, *fitting)
