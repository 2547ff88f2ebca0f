"""A sample's randomness depends on the seed, the epoch and its position alone."""

from __future__ import annotations

import torch

from gpudoc.train.data import draws
from gpudoc.train.data.order import Chunk
from gpudoc.train.data.reader import DirectFeed, Reader
from tests.train.data.test_feed import Drawing, order, rows


def test_reading_leaves_the_processes_own_generators_alone():
    generators = draws.Generators()
    before = generators.snapshot()
    rows(DirectFeed(Reader(Drawing(), None, 5), pin_memory=False), order(10))
    assert generators.moved(before) == 0


def test_a_data_set_that_draws_nothing_is_never_seeded():
    reader = Reader(Drawing(late=99), None, 5)
    rows(DirectFeed(reader, pin_memory=False), order(10))
    assert reader.drawn == 0


def test_a_collate_that_draws_is_the_same_at_any_place_in_a_run():
    def masking(samples):
        return torch.stack(samples) * (torch.rand(len(samples), 4) > 0.5)

    chunk = Chunk(3, 1, 12, (4, 5, 6), True)
    late = Reader(Drawing(late=99), masking, 5)
    late[Chunk(0, 0, 0, (1, 2), True)]
    assert torch.equal(late[chunk], Reader(Drawing(late=99), masking, 5)[chunk])


def test_batched_reading_is_used_where_the_data_set_offers_it():
    class Batched(Drawing):
        def __getitems__(self, indices):
            return [torch.tensor([float(i)]) for i in indices]

    assert Reader(Batched(), None, 5)[Chunk(0, 0, 0, (3, 1), True)].tolist() == [[3.0], [1.0]]
