"""Makes a plan from a recipe: traced at two batches, or measured twice on the CPU if it cannot be traced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpudoc.errors import ExitCode, GpudocError
from gpudoc.plan.memory import MemoryModel, WorkModel, join
from gpudoc.plan.tape import Tape
from gpudoc.plan.tracing import Recipe, UntraceableError, record, record_real
from gpudoc.progress import SILENT, Progress

# large enough that kernels' scratch has stopped growing; fake tensors cost the same at any batch
TRACED_AT = (24, 40)
CHECKED_AT = 96
PROBED_AT = (2, 4)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The needs of a step: memory and work as functions of the batch.

    `probed` says why and where the step could not be traced; its figures then come from two small real runs.
    `num_samples` is the recipe's.
    """

    memory: MemoryModel
    work: WorkModel
    num_parameters: int
    probed: str | None = None
    num_samples: int | None = None


def plan_recipe(recipe: Recipe, batch_sizes: Sequence[int] = TRACED_AT, progress: Progress = SILENT) -> Plan:
    """Trace `recipe`, or run it twice on this CPU if it cannot be traced; GpudocError if neither works."""
    try:
        return traced(recipe, batch_sizes)
    except UntraceableError as reason:
        progress.say(f"cannot be traced: {reason}; trying two real steps on the CPU instead")
        return _probe(recipe, reason)


def traced(recipe: Recipe, batch_sizes: Sequence[int] = TRACED_AT) -> Plan:
    """Trace `recipe` at two batches, or at three if a size grows with the batch's square; or UntraceableError."""
    tapes = [record(recipe, batch) for batch in batch_sizes]
    if join(tapes, recipe.like).grows_faster_than_the_batch():
        tapes.append(record(recipe, CHECKED_AT))
    return _plan(tapes, recipe)


def _probe(recipe: Recipe, reason: UntraceableError) -> Plan:
    try:
        tapes = [record_real(replace(recipe, like="cpu"), batch) for batch in PROBED_AT]
    except (MemoryError, RuntimeError) as error:
        text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise GpudocError(
            f"the step can be neither traced ({reason}) nor run here ({text})",
            hint="plan it on a machine with more memory, or remove data-dependent shapes from the model",
            exit_code=ExitCode.BAD_ANSWER,
        ) from error
    return replace(_plan(tapes, recipe), probed=str(reason))


def _plan(tapes: Sequence[Tape], recipe: Recipe) -> Plan:
    first, second = tapes[0], tapes[1]
    work = WorkModel(batches=(first.batch, second.batch), works=(tuple(first.work), tuple(second.work)))
    memory = join(tapes, recipe.like)
    return Plan(memory=memory, work=work, num_parameters=first.num_parameters, num_samples=recipe.num_samples)
