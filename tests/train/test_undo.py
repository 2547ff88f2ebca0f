"""A step that is taken back leaves no trace in buffers, gradients or random state."""

from __future__ import annotations

import torch
from torch import nn

from gpudoc.train.undo import Undo

CPU = torch.device("cpu")


def test_batch_norm_dropout_and_gradients_are_as_before():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    undo = Undo(model, CPU)
    for _ in range(4):
        undo.mark()
        before = {name: buffer.clone() for name, buffer in model.named_buffers()}
        first = model(torch.ones(3, 4) + torch.rand(3, 4))
        first.sum().backward()
        undo.back()
        assert all(torch.equal(before[name], buffer) for name, buffer in model.named_buffers())
        assert all(parameter.grad is None for parameter in model.parameters())
        assert torch.equal(model(torch.ones(3, 4) + torch.rand(3, 4)), first)


def test_buffers_that_never_move_are_not_copied():
    class Still(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(2, 2)
            self.register_buffer("table", torch.ones(1000))

        def forward(self, x):
            return self.linear(x) + self.table[:2]

    model = Still()
    undo = Undo(model, CPU)
    for _ in range(3):
        undo.mark()
        model(torch.ones(1, 2))
    undo.mark()
    assert undo._moving == []


def test_a_buffer_that_moves_only_later_is_kept_again_after_being_told():
    model = nn.BatchNorm1d(2)
    model.eval()
    undo = Undo(model, CPU)
    for _ in range(3):
        undo.mark()
        model(torch.rand(4, 2))
    model.train()
    undo.keep_all_buffers()
    undo.mark()
    before = model.running_mean.clone()
    model(torch.rand(4, 2))
    undo.back()
    assert torch.equal(before, model.running_mean)
