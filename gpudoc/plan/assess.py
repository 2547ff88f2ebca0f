"""The answers of one workload for several targets: traced once per precision and change, replayed per target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gpudoc.errors import GpudocError
from gpudoc.knowledge.cards import context_range
from gpudoc.plan.advice import Variants, ladder
from gpudoc.plan.need import Need
from gpudoc.plan.planning import Plan
from gpudoc.plan.roofline import least_step_s
from gpudoc.plan.settings import PlanSettings
from gpudoc.plan.target import PlanTarget, TargetAnswer, TargetsResult, parse_target
from gpudoc.progress import SILENT, Progress
from gpudoc.workload.build import Workload

# the uncertain share of the memory: the size of the context if the step was traced, also cuDNN's workspaces if it has
# convolutions, and every difference between CUDA and the CPU if it had to be run on the CPU
_TRACED_DOUBT, _CONVOLUTION_DOUBT, _PROBED_DOUBT = 0.03, 0.05, 0.20
# number of larger batches that are tried too, each a sixty-fourth further
_BEYOND = 8


def assess_targets(workload: Workload, names: Sequence[str], *, progress: Progress = SILENT) -> TargetsResult:
    """The answers of `workload` for `names`; traces once per precision and change, replays per target."""
    targets = [parse_target(name) for name in names if name.strip()]
    if not targets:
        raise GpudocError("name a target", hint='for example: --target "RTX 3090,24GiB"')
    variants = Variants(workload, progress)
    reference = workload.config.train.reference_batch
    wanted = workload.config.train.precision
    answers = []
    for number, target in enumerate(targets):
        progress.advance(number, len(targets), f"planning for {target.name}")
        precision = target.precision if wanted == "auto" else wanted
        settings = PlanSettings(like="cuda", precision=precision)
        found = answer(variants, target, settings)
        rungs = ladder(variants, target, precision, reference) if found.largest_batch < reference else ()
        answers.append(replace(found, ladder=rungs))
    plan = variants.first()
    return TargetsResult(
        name=workload.name,
        num_parameters=plan.num_parameters,
        reference_batch=reference,
        probed=plan.probed,
        notes=tuple(f"{note.text} at {note.place}" for note in plan.memory.notes),
        answers=tuple(answers),
    )


def answer(variants: Variants, target: PlanTarget, settings: PlanSettings) -> TargetAnswer:
    """The answer for `target` under `settings`, without a ladder; GpudocError if the model does not allow them."""
    plan = variants.plan_or_none(settings)
    if plan is None:
        raise GpudocError("activation checkpointing: the model has no repeated block to recompute")
    need = Need.on(plan, target)
    largest = need.largest_batch()
    at = max(1, largest)
    peak = need.peak_bytes(at)
    doubt = _doubt(plan)
    asked = plan.memory.peak_bytes(at) + context_range(target.capability)[0]
    return TargetAnswer(
        target=target,
        precision=settings.precision,
        largest_batch=largest,
        largest_batch_interval=_interval(need, largest, doubt, _spare(target)),
        peak_bytes=peak,
        peak_bytes_at_1=need.peak_bytes(1),
        bytes_per_sample=round(plan.memory.bytes_per_sample(at)),
        interval=(int(asked * (1 - doubt)), int(peak * (1 + doubt))),
        composition=plan.memory.composition(at).by_kind,
        least_step_s=None if target.card is None else least_step_s(plan.work.at(at), target.card),
    )


def _doubt(plan: Plan) -> float:
    if plan.probed:
        return _PROBED_DOUBT
    convolves = any(block.op.startswith("convolution") for block in plan.memory.blocks)
    return _CONVOLUTION_DOUBT if convolves else _TRACED_DOUBT


def _spare(target: PlanTarget) -> float:
    """The extra memory if the context is the smallest known one, as a share of the allocator's memory."""
    least, most = context_range(target.capability)
    return (most - least) / target.allocator_bytes


def _interval(need: Need, largest: int, doubt: float, spare: float = 0.0) -> tuple[int, int]:
    """The range of the largest batch: batches that fit into less and into more memory, and batches beyond a hole.

    Fragmentation leaves holes, where a batch fails although a larger one fits; a search ends at the edge of some hole.
    The allocator's choice between two free blocks of one size depends on their addresses, which the driver chooses:
    both orders are tried.
    """
    shares = (1 - doubt, 1 + doubt + spare)
    found = [largest, *(need.largest_near(int(largest * share), share) for share in shares)]
    found.append(need.largest_near(largest, 1.0, rising=True))
    step = max(1, largest // 64)
    beyond = [largest + step * number for number in range(1, _BEYOND + 1)]
    fitting = [batch for batch in beyond if need.fits(batch)]
    return min(found), max(*found, *fitting)
