"""Who drew from which generator is seen, at little cost, and all of it can be put back."""

from __future__ import annotations

import random

import numpy
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from gpudoc.train.data import draws

DRAWS = {
    draws.PYTHON: lambda: random.random(),
    draws.NUMPY: lambda: numpy.random.rand(),
    draws.TORCH: lambda: torch.rand(()),
}


@pytest.mark.parametrize("which", DRAWS)
@pytest.mark.parametrize("times", [1, 624, 1248])
def test_a_draw_is_seen_and_only_of_its_generator(which, times):
    generators = draws.Generators()
    before = generators.snapshot()
    assert generators.moved(before) == 0
    for _ in range(times):
        DRAWS[which]()
    assert generators.moved(before) == which


@pytest.mark.parametrize("which", DRAWS)
def test_restoring_repeats_the_draws(which):
    generators = draws.Generators()
    for _ in range(3):
        DRAWS[which]()
        before = generators.snapshot()
        first = [float(DRAWS[which]()) for _ in range(5)]
        generators.restore(before)
        assert [float(DRAWS[which]()) for _ in range(5)] == first


def test_a_snapshot_is_right_although_python_and_numpy_state_is_read_only_when_it_moved():
    generators = draws.Generators()
    old = generators.snapshot()
    random.random()
    numpy.random.rand()
    new = generators.snapshot()
    expected = (random.random(), numpy.random.rand())
    generators.restore(old)
    generators.restore(new)
    assert (random.random(), numpy.random.rand()) == expected


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_a_normal_number_that_torch_drew_before_and_kept_is_seen_when_it_is_taken(kind):
    """The second of two takes nothing from the generator itself."""
    generators = draws.Generators()
    torch.empty((), dtype=kind).normal_()
    words = torch.default_generator.get_state()[:5016]
    before = generators.snapshot()
    first = torch.empty((), dtype=kind).normal_()
    assert torch.equal(words, torch.default_generator.get_state()[:5016])
    assert generators.moved(before) == draws.TORCH
    generators.restore(before)
    assert torch.equal(first, torch.empty((), dtype=kind).normal_())
    torch.manual_seed(1)


def test_the_state_of_torch_is_copied_only_when_it_moved():
    generators = draws.Generators()
    first = generators.snapshot()
    assert generators.snapshot() is first
    assert generators.moved(first) == 0
    torch.rand(())
    second = generators.snapshot()
    assert torch.equal(second.torch, torch.default_generator.get_state())
    assert not torch.equal(first.torch, second.torch)


def test_torch_with_another_layout_and_with_operators_that_do_not_run_is_watched_whole(monkeypatch):
    def unknown():
        raise LookupError

    monkeypatch.setattr(draws, "_torch_layout", unknown)
    generators = draws.Generators()
    before = generators.snapshot()
    assert generators.moved(before) == 0
    torch.rand(())
    assert generators.moved(before) == draws.TORCH
    generators.restore(before)
    assert generators.moved(before) == 0
    monkeypatch.undo()
    draws._torch_layout.cache_clear()
    with FakeTensorMode(), pytest.raises(LookupError):
        draws._torch_layout()
    # this torch's layout is known, which makes steps cheap
    assert draws._torch_layout() > 0


def test_without_known_layout_the_whole_state_is_the_witness(monkeypatch):
    monkeypatch.setattr(draws, "_knows_layout", lambda: False)
    generators = draws.Generators()
    before = generators.snapshot()
    random.random()
    assert generators.moved(before) == draws.PYTHON


def test_seeding_touches_only_what_it_is_told():
    generators = draws.Generators()
    before = generators.snapshot()
    draws.seed(draws.TORCH, 5)
    assert generators.moved(before) == draws.TORCH
    draws.seed(draws.TORCH, 5)
    assert torch.rand(()).item() == torch.rand((), generator=torch.Generator().manual_seed(5)).item()


@pytest.mark.parametrize("which", [draws.PYTHON, draws.NUMPY])
def test_seeding_anew_is_seen_although_the_place_in_the_state_is_the_same(which):
    generators = draws.Generators()
    draws.seed(which, 1)
    before = generators.snapshot()
    draws.seed(which, 2)
    assert generators.moved(before) == which
    expected = generators.snapshot()
    first = DRAWS[which]()
    generators.restore(before)
    generators.restore(expected)
    assert DRAWS[which]() == first
