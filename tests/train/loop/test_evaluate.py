"""The eval loss is the mean over items, and evaluation survives running out of memory."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.data import default_collate

from gpudoc.errors import GpudocError
from gpudoc.train.data.feed import Feeds, LoaderSettings
from gpudoc.train.data.order import Order
from gpudoc.train.data.reader import Reader
from gpudoc.train.loop.evaluate import TooLarge, evaluate
from gpudoc.train.step.precision import Precision
from gpudoc.train.step.step import Parts
from gpudoc.train.stop import Stop
from gpudoc.workload.build import Step


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, index):
        return torch.tensor([float(index)]), torch.tensor([0.0])


class Fussy(nn.Module):
    """Runs out of memory with more than `most` samples at once."""

    def __init__(self, most):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))
        self.most = most
        self.dropout = nn.Dropout(0.9)

    def forward(self, x):
        if len(x) > self.most:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes")
        return self.dropout(x * self.scale)


def parts(model):
    return Parts(
        model=model,
        forward=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        step=Step(loss=nn.MSELoss(), name="t"),
        device=torch.device("cpu"),
        precision=Precision("fp32", "t"),
    )


def run(model, batch, stop=None, data=None, collate=None):
    stop = stop or Stop()
    feeds = Feeds(Reader(data or Numbers(), collate, 0), LoaderSettings(), stop)
    order = Order(num_samples=10, global_batch=batch, micro_batch=batch, seed=0, shuffled=False)
    return evaluate(parts(model), feeds, order, stop)


def test_uneven_batches_weigh_by_their_samples_and_dropout_is_off():
    expected = sum(i * i for i in range(10)) / 10
    assert run(Fussy(99), 4).loss == pytest.approx(expected)


def test_running_out_of_memory_halves_and_gives_the_same_mean():
    found = run(Fussy(2), 10)
    assert found.loss == pytest.approx(28.5)
    assert [(before, after) for before, after, _ in found.shrunk] == [(10, 5), (5, 2)]
    assert found.micro_batch == 2


def test_one_sample_that_does_not_fit_is_named():
    with pytest.raises(TooLarge, match=r"float32\[1, 1\]"):
        run(Fussy(0), 4)


def test_a_stop_leaves_the_evaluation_and_the_mode_comes_back():
    stop = Stop()
    stop.ask("Ctrl+C", 130)
    model = Fussy(99)
    model.train()
    assert run(model, 4, stop).loss is None
    assert model.training
    assert model.dropout.training


def two_at_most(samples):
    if len(samples) > 2:
        raise MemoryError("no memory to put them together")
    return default_collate(samples)


def test_memory_that_runs_out_while_reading_halves_too():
    found = run(Fussy(99), 10, collate=two_at_most)
    assert found.loss == pytest.approx(28.5)
    assert [(before, after) for before, after, _ in found.shrunk] == [(10, 5), (5, 2)]
    assert "no memory to put them together" in found.shrunk[0][2]


class Broken(Numbers):
    def __getitem__(self, index):
        if index == 6:
            raise KeyError("no such row")
        return super().__getitem__(index)


def test_a_sample_that_cannot_be_read_is_named():
    with pytest.raises(GpudocError, match=r"reading sample 6: KeyError: 'no such row'"):
        run(Fussy(99), 4, data=Broken())


def test_an_error_of_the_model_says_what_it_was_given():
    class Wrong(Fussy):
        def forward(self, x):
            return x @ torch.ones(3, 3)

    with pytest.raises(GpudocError, match=r"in the model or the loss: .* the batch was float32\[4, 1\]"):
        run(Wrong(99), 4)
