"""Weights that are NaN or infinite are seen when enough was measured and at the end, and asked of nothing odd."""

from __future__ import annotations

import pytest
import torch

from gpudoc.script.inside._gpudoc_inside.steps import are_finite
from gpudoc.script.messages import HookOrder
from tests.script.watched import watch_text

DIVERGES = """
for epoch in range(3):
    for x, y in DataLoader(Rows(), 8):
        step(x, y)
        with torch.no_grad():
            model.weight.mul_({factor})
print("done")
"""


def optimizer(*weights):
    return torch.optim.SGD([torch.nn.Parameter(weight) for weight in weights], lr=0.1)


@pytest.mark.parametrize(
    ("weights", "finite"),
    [
        ((torch.ones(3), torch.zeros(5)), True),
        ((torch.ones(3), torch.tensor([1.0, float("nan")])), False),
        ((torch.tensor([float("inf")]),), False),
        ((torch.ones(2, dtype=torch.bfloat16),), True),
        ((torch.ones(2, device="meta"),), None),
    ],
)
def test_weights_are_numbers_or_not_or_cannot_be_asked(weights, finite):
    assert are_finite(optimizer(*weights)) is finite


def test_weights_of_another_kind_such_as_those_spread_over_ranks_are_not_asked():
    class Spread(torch.Tensor):
        pass

    spread = torch.nn.Parameter(torch.full((2,), float("nan")).as_subclass(Spread))
    assert type(spread) is not torch.nn.Parameter
    assert are_finite(torch.optim.SGD([spread], lr=0.1)) is None


@pytest.mark.parametrize(("factor", "finite"), [("1.0", True), ("float('nan')", False)])
@pytest.mark.parametrize("order", [HookOrder(purpose="look", warm_steps=1, steps=2), HookOrder(purpose="run")])
def test_a_script_whose_weights_are_nan_is_seen_by_a_look_and_by_a_run(tmp_path, order, factor, finite):
    (seen,) = watch_text(tmp_path, DIVERGES.replace("{factor}", factor), order).seen
    assert seen.steps[-1].finite is finite
    assert seen.has_diverged is not finite
