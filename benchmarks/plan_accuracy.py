"""Predicted against real peaks on the CPU: tensor bytes as the profiler's memory events count them."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gpudoc.plan.memory import join
from gpudoc.plan.tracing import STEPS, Recipe, record
from tests.plan.zoo import recipes


def measured_peak(recipe: Recipe, batch: int) -> int:
    """Bytes at the highest point of a real run; the profiler sees every allocation of the CPU's allocator."""
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


def main() -> None:
    torch.manual_seed(0)
    scale = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    only = sys.argv[2:]
    for precision in ("fp32", "bf16"):
        for name, recipe in recipes(precision, scale).items():
            if only and name not in only:
                continue
            model = join([record(recipe, 24), record(recipe, 40)], "cpu")
            for batch in (4, 16, 64):
                real, plan = measured_peak(recipe, batch), model.peak_bytes(batch)
                print(
                    f"{precision} {name:14} {batch:4} {real:12,} {plan:12,} {plan / real - 1:+8.3%} {model.exact}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
