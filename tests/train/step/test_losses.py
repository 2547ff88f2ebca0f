"""Losses come back as they were and in their order, and on a CPU none is kept as a tensor."""

import gc
import weakref

import pytest
import torch

from gpudoc.train.step.step import Losses


@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_losses_come_back_as_they_were_and_once(device, kind):
    # whatever is no CPU is read when it is asked for
    losses = Losses(torch.device(device))
    given = [torch.tensor(value, dtype=kind) for value in (0.1, float("inf"), 3.7)]
    for loss in given:
        losses.add(loss)
    assert losses.take() == [loss.item() for loss in given]
    losses.add(given[0])
    assert losses.take() == [given[0].item()]
    assert losses.take() == []


def test_on_a_cpu_no_tensor_is_kept_since_it_would_pin_the_heap():
    losses = Losses(torch.device("cpu"))
    loss = torch.tensor(1.5)
    kept = weakref.ref(loss)
    losses.add(loss)
    del loss
    gc.collect()
    assert kept() is None
    assert losses.take() == [1.5]
