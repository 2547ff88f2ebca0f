"""A step that is taken back leaves no trace in buffers, gradients or random state."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gpudoc.train.step.sequence import Undo

HERE = [torch.device("cpu"), pytest.param(torch.device("cuda"), marks=pytest.mark.standin)]


class Custom(nn.Module):
    """Moves a buffer in one of the ways that leave its version as it was, and only from the fourth call on."""

    def __init__(self, how):
        super().__init__()
        self.how, self.calls = how, 0
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x):
        self.calls += 1
        now = x.detach().mean(0)
        if self.calls < 4:
            return x
        if self.how == "data":
            self.mean.data.lerp_(now, 0.5)
        else:
            self.mean = self.mean * 0.5 + now
        return x - self.mean


MOVERS = {
    "batch norm": lambda: nn.BatchNorm1d(4),
    "data": lambda: Custom("data"),
    "assignment": lambda: Custom("assignment"),
}


def on_host(model):
    return {name: buffer.tolist() for name, buffer in model.named_buffers()}


@pytest.mark.parametrize("device", HERE, ids=str)
@pytest.mark.parametrize("mover", MOVERS)
def test_a_step_done_again_finds_buffers_and_random_state_as_they_were(mover, device):
    """After steps that were kept: then only what is copied at every boundary can come back."""
    model = nn.Sequential(nn.Linear(4, 4), MOVERS[mover](), nn.Dropout(0.5)).to(device)
    undo = Undo(model, device)

    def step():
        out = model(torch.ones(3, 4, device=device) + torch.rand(3, 4, device=device))
        out.sum().backward()
        return out

    for _ in range(4):
        undo.mark()
        step()
    undo.mark()
    before = on_host(model)
    first = step().tolist()
    moved = on_host(model)
    undo.back()
    assert moved != before
    assert on_host(model) == before
    assert all(parameter.grad is None for parameter in model.parameters())
    assert step().tolist() == first


def test_a_model_whose_buffer_is_unset_can_be_undone():
    model = nn.BatchNorm1d(2, track_running_stats=False)
    undo = Undo(model, torch.device("cpu"))
    undo.mark()
    model(torch.rand(4, 2))
    undo.back()
    assert model.running_mean is None
