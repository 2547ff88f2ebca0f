"""Memory that runs out where the optimizer makes its state: nothing is changed, or it is said."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gpudoc.errors import GpudocError
from gpudoc.train.loop.rescue import Rescuer, RescueRules
from gpudoc.train.ranks.protocol import OOM
from gpudoc.train.step.precision import Precision
from gpudoc.train.step.sequence import Guard
from gpudoc.train.step.step import Micro, Parts, Stepper
from gpudoc.workload.build import Step

HERE = [torch.device("cpu"), pytest.param(torch.device("cuda"), marks=pytest.mark.standin)]


class Job:
    """What an update needs of a job, and the guard that makes it."""

    def __init__(self, device, optimizer):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2)).to(device)
        parts = Parts(
            model=model,
            forward=model,
            optimizer=optimizer([{"params": model[0].parameters()}, {"params": model[1].parameters()}]),
            step=Step(loss=nn.MSELoss(), name="t"),
            device=device,
            precision=Precision("fp32", "t"),
        )
        self.stepper = Stepper(parts)
        self.guard = Guard(self.stepper, Rescuer(parts, None, RescueRules()).judge)

    def backward(self, factor=1.0):
        generator = torch.Generator().manual_seed(1)
        batch = (factor * torch.randn(5, 4, generator=generator), torch.randn(5, 2, generator=generator))
        self.stepper.backward([Micro(batch, 1.0)])

    def weights(self):
        return [parameter.tolist() for parameter in self.stepper.parameters]


@pytest.mark.parametrize("device", HERE, ids=str)
@pytest.mark.parametrize("form", [{"fused": True}, {"foreach": True}], ids=str)
def test_state_that_fits_for_the_first_group_of_weights_only_leaves_none_of_them_updated(monkeypatch, device, form):
    """Fused kernels count no version up, so that an update of the first group could not be seen afterwards."""
    make = lambda groups: torch.optim.AdamW(groups, lr=0.1, **form)  # noqa: E731
    plain, job = Job(device, make), Job(device, make)
    plain.backward()
    plain.stepper.update()
    before, zeros_like = job.weights(), torch.zeros_like

    def scarce(tensor, **options):
        if tensor.shape == (2, 3):
            raise MemoryError
        return zeros_like(tensor, **options)

    job.backward()
    monkeypatch.setattr(torch, "zeros_like", scarce)
    if "fused" in form:
        assert job.guard.update() == OOM
        assert job.weights() == before
    else:
        with pytest.raises(GpudocError, match="may be half updated"):
            job.guard.update()
        assert job.stepper.is_updating
        return
    monkeypatch.undo()
    job.backward()
    assert job.guard.update() == 0
    assert job.weights() == plain.weights()


@pytest.mark.parametrize("device", HERE, ids=str)
def test_momentum_begins_with_the_first_gradient_that_is_finite(device):
    """SGD's fused kernel makes momentum of whatever the memory held when its first step is skipped."""
    make = lambda groups: torch.optim.SGD(groups, lr=0.1, momentum=0.9, fused=True)  # noqa: E731
    plain, job = Job(device, make), Job(device, make)
    for factor in (float("nan"), 1.0, 1.0):
        job.backward(factor)
        assert job.guard.update() == 0
        assert bool(job.stepper.parts.optimizer.state) == (factor == 1.0)
    for _ in range(2):
        plain.backward()
        plain.stepper.update()
    assert job.weights() == plain.weights()
    assert job.stepper.num_skipped() == 1
