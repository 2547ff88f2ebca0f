"""The needs of a training step on hardware that is not here: memory, work and changes that would make it fit.

Two entry points: `trace` for any Python step, `predict` for a cfg.yaml. `targets` answers for cards and sizes, `ladder`
gives the changes that would make it fit on one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from gpudoc.plan.settings import PlanSettings as PlanSettings
from gpudoc.progress import SILENT, Progress

if TYPE_CHECKING:
    from gpudoc.plan.planning import Plan
    from gpudoc.plan.target import PlanTarget, Rung, TargetsResult
    from gpudoc.workload.build import Workload


def trace(
    build: Callable[[], Any],
    step: Callable[[Any, Any], object],
    batch: Callable[[int], Any],
    *,
    like: str = "cpu",
    batch_sizes: Sequence[int] = (24, 40),
) -> Plan:
    """The plan of any step: `build()` makes models and optimizers, `batch(n)` inputs, `step(state, inputs)` trains.

    `like` is 'cpu' or 'cuda', and chooses the kernels of the step. Nothing is allocated.
    """
    from gpudoc.plan.planning import plan_recipe
    from gpudoc.plan.tracing import Recipe

    return plan_recipe(Recipe(build=build, batch=batch, step=step, like=like), batch_sizes)


def predict(workload: Workload, settings: PlanSettings = PlanSettings()) -> Plan:  # noqa: B008
    """The plan of a workload's step for a search that is about to probe it.

    Its memory is tensor bytes of this process on the CPU, allocated bytes on CUDA. UntraceableError if real values are
    needed: no real step is run instead.
    """
    from gpudoc.plan.from_workload import workload_recipe
    from gpudoc.plan.planning import traced

    return traced(workload_recipe(workload, settings))


def ladder(workload: Workload, target: PlanTarget, precision: str, progress: Progress = SILENT) -> tuple[Rung, ...]:
    """Changes that let `workload` train on `target` in `precision`, each on top of those before it."""
    from gpudoc.plan.advice import Variants
    from gpudoc.plan.advice import ladder as found

    return found(Variants(workload, progress), target, precision, workload.config.train.reference_batch)


def targets(workload: Workload, names: Sequence[str], *, progress: Progress = SILENT) -> TargetsResult:
    """The needs of `workload` on each card or size in `names` ('RTX 3090', '24GiB'); GpudocError for unknown names."""
    from gpudoc.plan.assess import assess_targets

    return assess_targets(workload, names, progress=progress)
