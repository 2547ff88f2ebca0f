"""What small steps tell of many: growth, other operations, and tensors that stay are seen wherever they begin."""

import pytest
import torch
from torch import nn

from gpudoc.tune.child.likeness import are_alike, tell_alike
from gpudoc.tune.trial.messages import TrialRequest
from gpudoc.tune.trial.wire import LifeSign

COUNT = 25


class Net(nn.Module):
    """Does something else from step `at` on, or at every step that `at` divides."""

    def __init__(self, fault, at):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.fault, self.at, self.number, self.kept = fault, at, 0, []

    def forward(self, x):
        self.number += 1
        if self.fault == "unfreezes":
            self.first.requires_grad_(self.number >= self.at)
        y = self.second(self.first(x))
        if self.fault == "grows" and self.number == self.at:
            self.kept.append(torch.ones(1 << 18))
        if self.fault == "hessian" and self.number % self.at == 0:
            y = y + (x @ x.T).sum()
        if self.fault == "queue" and self.number >= self.at:
            self.kept[:] = [torch.cat([*self.kept, y.detach()])]
        if self.fault == "keeps outputs":
            self.kept.append(y)
        if self.fault == "cycle":
            cycle = [y]
            cycle.append(cycle)
        if self.fault == "fails" and self.number == self.at:
            raise ValueError("batch 2 is refused")
        return y


def stepping(fault=None, at=12):
    torch.manual_seed(0)
    net = Net(fault, at)
    optimizer = torch.optim.AdamW(net.parameters())
    x = torch.ones(2, 4)

    def step():
        net(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def test_a_plain_training_does_the_same_in_every_step():
    assert are_alike(stepping(), COUNT, lambda: False)


@pytest.mark.parametrize("fault", ["unfreezes", "grows", "hessian", "queue", "keeps outputs", "cycle"])
def test_what_begins_at_step_twelve_or_stays_after_a_step_is_seen(fault):
    assert not are_alike(stepping(fault), COUNT, lambda: False)


def test_what_comes_after_the_last_step_cannot_be_seen_and_what_comes_before_the_third_is_no_difference():
    assert are_alike(stepping("unfreezes", at=COUNT + 1), COUNT, lambda: False)
    assert not are_alike(stepping("unfreezes", at=COUNT), COUNT, lambda: False)
    assert are_alike(stepping("unfreezes", at=2), COUNT, lambda: False)


def test_where_time_runs_out_nothing_is_known():
    assert not are_alike(stepping(), COUNT, lambda: True)


class Trainee:
    def __init__(self, step):
        self.step = step

    def train(self, batches):
        assert batches == [("worst", 2)]
        self.step()


class Samples:
    def worst(self, batch):
        return ("worst", batch)


@pytest.mark.parametrize(("fault", "alike"), [(None, 1.0), ("grows", 0.0), ("fails", 0.0)])
def test_what_is_found_is_told_and_what_fails_is_nobodys_fault(fault, alike):
    told = []
    request = TrialRequest(kind="alike", batches=(2,), steps=COUNT)
    tell_alike(Trainee(stepping(fault)), Samples(), request, told.append, lambda: False)
    assert (told[-1].name, told[-1].value) == ("alike", alike)
    assert sum(isinstance(event, LifeSign) for event in told) >= 11
