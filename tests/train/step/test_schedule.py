"""The learning rate is a pure function of the step."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gpudoc.train.step.schedule import Rates, batch_factor, factor
from gpudoc.workload.config import Schedule


@pytest.mark.parametrize("name", ["constant", "cosine", "linear", "one_cycle"])
def test_warm_up_rises_and_every_schedule_peaks_at_one(name):
    schedule = Schedule(name=name, warmup_steps=10)
    values = [factor(schedule, step, 100) for step in range(100)]
    assert values[:10] == sorted(values[:10])
    assert max(values) == pytest.approx(1.0)
    assert all(value > 0 for value in values)


def test_cosine_and_linear_end_at_the_final_share():
    for name in ("cosine", "linear"):
        schedule = Schedule(name=name, final_share=0.1)
        assert factor(schedule, 99, 100) == pytest.approx(0.1, abs=0.02)
        assert factor(schedule, 500, 100) == pytest.approx(0.1)


def test_constant_stays():
    assert {factor(Schedule(), step, 10) for step in range(10)} == {1.0}


def test_one_cycle_without_warm_up_takes_its_usual_share():
    schedule = Schedule(name="one_cycle")
    values = [factor(schedule, step, 100) for step in range(100)]
    assert values.index(max(values)) in (29, 30)
    assert values[0] < 0.1


def test_warm_up_longer_than_the_run_is_cut():
    assert factor(Schedule(name="cosine", warmup_steps=100), 0, 1) == 1.0


@pytest.mark.parametrize(
    ("rule", "optimizer", "expected"),
    [
        ("auto", "AdamW", (2.0, "sqrt")),
        ("auto", "SGD", (4.0, "linear")),
        ("linear", "AdamW", (4.0, "linear")),
        ("off", "SGD", (1.0, "off")),
    ],
)
def test_the_batch_rule(rule, optimizer, expected):
    assert batch_factor(rule, optimizer, 128, 32) == expected


def test_the_same_batch_changes_nothing():
    assert batch_factor("auto", "SGD", 32, 32) == (1.0, "off")


@pytest.mark.parametrize("lr", [0.1, torch.tensor(0.1)], ids=["number", "tensor"])
def test_groups_keep_their_proportion_and_a_tensor_stays_the_same_object(lr):
    weights = [nn.Parameter(torch.zeros(2)) for _ in range(2)]
    optimizer = torch.optim.SGD([{"params": weights[:1], "lr": lr}, {"params": weights[1:], "lr": 0.5}])
    rates = Rates(Schedule(name="linear", warmup_steps=2), optimizer, 6)
    for step in (0, 5):
        rates.set(step)
        expected = factor(Schedule(name="linear", warmup_steps=2), step, 6)
        assert [float(group["lr"]) for group in optimizer.param_groups] == pytest.approx(
            [0.1 * expected, 0.5 * expected]
        )
    assert isinstance(optimizer.param_groups[0]["lr"], type(lr))
