"""One process needs nobody."""

from __future__ import annotations

import os

from torch import nn

from gpudoc.train.ranks.protocol import OOM, STOP, Alone, off_stdout


def test_alone_everything_stays_as_it_is():
    ranks = Alone()
    model = nn.Linear(2, 2)
    assert ranks.vote(OOM | STOP) == OOM | STOP
    assert ranks.total([1.5, 2.0]) == [1.5, 2.0]
    assert ranks.gather("x") == ["x"]
    assert ranks.wrap(model) is model
    assert (ranks.rank, ranks.world) == (0, 1)


def test_what_a_library_prints_leaves_stdout_to_the_document(capfd):
    print("before")
    with off_stdout():
        os.write(1, b"[Gloo] Rank 0 is connected\n")
    print("after")
    out, err = capfd.readouterr()
    assert out == "before\nafter\n"
    assert "[Gloo]" in err
