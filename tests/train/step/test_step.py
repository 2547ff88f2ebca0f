"""One optimizer step: weighted like the full batch, skipped when not finite."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from gpudoc.train.step.precision import Precision
from gpudoc.train.step.step import Micro, Parts, Stepper
from gpudoc.workload.build import Step

CPU = torch.device("cpu")


def stepper(model, optimizer=None, **changes):
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
    step = Step(loss=nn.MSELoss(), name="test")
    return Stepper(
        Parts(
            model=model,
            forward=model,
            optimizer=optimizer,
            step=step,
            device=CPU,
            precision=Precision("fp32", "test"),
            **changes,
        )
    )


def batch(rows, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, 6, generator=generator, dtype=torch.float64)
    return [x, x.sum(1, keepdim=True)]


@pytest.mark.parametrize("sizes", [(12,), (4, 4, 4), (5, 5, 2), (1,) * 12])
def test_the_gradient_of_any_split_is_the_full_batchs(sizes):
    torch.manual_seed(0)
    model = nn.Linear(6, 1).double()
    other = copy.deepcopy(model)
    whole = batch(12)
    stepper(model).run([Micro(whole, 1.0)])
    parts = [list(pair) for pair in zip(*(tensor.split(sizes) for tensor in whole), strict=True)]
    split = stepper(other)
    split.run([Micro(part, size / 12) for part, size in zip(parts, sizes, strict=True)])
    assert torch.allclose(model.weight, other.weight, rtol=0, atol=1e-12)
    assert torch.allclose(model.weight.grad, other.weight.grad, rtol=0, atol=1e-12)


def test_a_step_that_is_not_finite_changes_nothing_and_is_counted():
    model = nn.Linear(6, 1).double()
    found = stepper(model, torch.optim.AdamW(model.parameters(), fused=True))
    found.run([Micro(batch(3), 1.0)])
    before = copy.deepcopy((model.state_dict(), found.parts.optimizer.state_dict()))
    bad = batch(3)
    bad[0][1, 2] = float("inf")
    found.run([Micro(bad, 1.0)])
    after = (model.state_dict(), found.parts.optimizer.state_dict())
    assert torch.equal(before[0]["weight"], after[0]["weight"])
    assert torch.equal(before[1]["state"][0]["exp_avg"], after[1]["state"][0]["exp_avg"])
    assert before[1]["state"][0]["step"] == after[1]["state"][0]["step"]
    assert found.num_skipped() == 1
    losses = found.losses.take()
    assert len(losses) == 2
    assert not torch.isfinite(torch.tensor(losses[1]))
    found.run([Micro(batch(3), 1.0)])
    assert found.num_skipped() == 1
    assert not torch.equal(before[0]["weight"], model.weight)


def test_sparse_gradients_are_checked_too():
    model = nn.Sequential(nn.Embedding(5, 2, sparse=True))
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    found = Stepper(
        Parts(
            model=model,
            forward=model,
            optimizer=optimizer,
            step=Step(loss=lambda out, y: (out.sum() * y).mean(), name="t"),
            device=CPU,
            precision=Precision("fp32", "test"),
        )
    )
    before = model[0].weight.detach().clone()
    found.run([Micro([torch.tensor([1]), torch.tensor(float("nan"))], 1.0)])
    assert found.num_skipped() == 1
    assert torch.equal(before, model[0].weight)


def test_clipping_keeps_the_norm_that_was_there():
    model = nn.Linear(6, 1).double()
    found = stepper(model, grad_clip=1e-3)
    found.run([Micro(batch(3), 1.0)])
    norm = found.norm_of_gradients()
    assert norm > 1e-2
    total = torch.linalg.vector_norm(torch.cat([p.grad.flatten() for p in model.parameters()]))
    assert total <= 1e-3 * 1.001


def test_bf16_trains_with_fp32_weights():
    model = nn.Linear(6, 1)
    parts = Parts(
        model=model,
        forward=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        step=Step(loss=nn.MSELoss(), name="t"),
        device=CPU,
        precision=Precision("bf16", "test"),
    )
    found = Stepper(parts)
    x = torch.randn(4, 6)
    found.run([Micro([x, x.sum(1, keepdim=True).bfloat16()], 1.0)])
    assert model.weight.dtype == torch.float32
    assert model.weight.grad.dtype == torch.float32


def test_an_update_waits_once_for_copies_that_still_read_the_weights():
    """Forward and backward go on beside the copies; only what overwrites the weights is held."""
    model = nn.Linear(6, 1).double()
    before = model.weight.detach().clone()
    held = []

    class Copying:
        def hold_update(self):
            held.append(torch.equal(model.weight, before))

    found = stepper(model)
    found.copying = Copying()
    found.backward([Micro(batch(3), 1.0)])
    assert held == []
    found.update()
    assert held == [True]
    found.run([Micro(batch(3), 1.0)])
    assert held == [True]


def test_the_norm_of_all_gradients_and_every_loss_since_they_were_read_last():
    model = nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 1)).double()
    found = stepper(model)
    expected = []
    for seed in range(3):
        found.run([Micro(batch(5, seed), 1.0)])
        expected.append(float(found._loss))
    norm = torch.linalg.vector_norm(torch.cat([p.grad.flatten() for p in model.parameters()]))
    assert found.norm_of_gradients() == pytest.approx(float(norm), rel=1e-9)
    assert found.losses.take() == expected
    assert found.losses.take() == []
