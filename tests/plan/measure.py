"""Real peaks on the CPU, by an instrument that shares no code with the plan: the profiler's memory events."""

from __future__ import annotations

from torch.profiler import ProfilerActivity, profile

from gpudoc.plan.tracing import STEPS, Recipe


def measured_peak(recipe: Recipe, batch: int) -> int:
    """Bytes at the highest point of building and two real steps, every allocation of the CPU's allocator counted."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as run:
        state = recipe.build()
        for _ in range(STEPS):
            recipe.step(state, recipe.batch(batch))
    living = peak = 0
    for event in sorted(run.profiler.kineto_results.events(), key=lambda event: event.start_ns()):
        if event.name() == "[memory]":
            living += event.nbytes()
            peak = max(peak, living)
    return peak
