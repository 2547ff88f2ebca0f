"""One process needs nobody."""

from __future__ import annotations

import torch
from torch import nn

from gpudoc.train.ranks import OOM, STOP, Alone, device_of


def test_alone_everything_stays_as_it_is():
    ranks = Alone()
    model = nn.Linear(2, 2)
    assert ranks.vote(OOM | STOP) == OOM | STOP
    assert ranks.total([1.5, 2.0]) == [1.5, 2.0]
    assert ranks.gather("x") == ["x"]
    assert ranks.wrap(model) is model
    assert (ranks.rank, ranks.world) == (0, 1)


def test_each_rank_takes_its_own_gpu():
    class Second(Alone):
        world = 2
        local_rank = 1

    assert device_of("cuda:0", Second()) in (torch.device("cuda", 0), torch.device("cuda", 1))
    assert device_of("cpu", Second()) == torch.device("cpu")
