"""What is counted of a step: the model's own work, and apart from it what is computed a second time."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gpudoc.workload import recompute
from gpudoc.workload.flops import Counter

ROWS, WIDTH = 6, 16


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.second(torch.relu(self.first(x)))


def step_of(model):
    with Counter() as counter:
        model(torch.randn(ROWS, WIDTH)).sum().backward()
    return counter


def product(rows, inner, columns):
    return 2 * rows * inner * columns


def test_a_step_is_counted_forward_and_backward():
    # forward, and the gradient of the weight; the input has none
    assert step_of(nn.Linear(WIDTH, 8)).model == 2 * product(ROWS, WIDTH, 8)
    # two products forward, and in backward two for each of them but the first, whose input has no gradient
    assert step_of(Block()).model == 5 * product(ROWS, WIDTH, 4 * WIDTH)


def test_what_is_computed_again_is_counted_apart():
    blocks = nn.Sequential(Block(), Block(), Block())
    plain = step_of(blocks)
    assert plain.again == 0
    assert recompute.apply(blocks) == 3
    repeated = step_of(blocks.train())
    assert repeated.model == plain.model
    # of each block, at least the first product is needed again in backward
    assert 3 * product(ROWS, WIDTH, 4 * WIDTH) <= repeated.again <= 6 * product(ROWS, WIDTH, 4 * WIDTH)
    assert not recompute.is_again()


def test_counting_changes_no_bit():
    torch.manual_seed(0)
    block, x = Block(), torch.randn(ROWS, WIDTH)
    block(x).sum().backward()
    before = [parameter.grad.clone() for parameter in block.parameters()]
    block.zero_grad()
    with Counter():
        block(x).sum().backward()
    assert all(parameter.grad.equal(own) for parameter, own in zip(block.parameters(), before, strict=True))


@pytest.mark.parametrize("kind", ["attention", "convolution"])
def test_attention_and_convolutions_count(kind):
    if kind == "attention":
        q = torch.randn(2, 4, 16, 8, requires_grad=True)
        with Counter() as counter:
            nn.functional.scaled_dot_product_attention(q, q, q)
        assert counter.model == 2 * 2 * 4 * 16 * 16 * (8 + 8)
    else:
        with Counter() as counter:
            nn.Conv2d(3, 5, 3, padding=1)(torch.randn(2, 3, 8, 8))
        assert counter.model == 2 * 2 * 8 * 8 * 5 * 3 * 3 * 3
