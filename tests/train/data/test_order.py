"""The order of samples is a function of (seed, epoch, position) and of nothing else."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpudoc.train.data.order import Order, accumulation, auto_global_batch, sample_seed


def order(**changes):
    return Order(**{"num_samples": 50, "global_batch": 8, "micro_batch": 3, "seed": 7, **changes})


@settings(max_examples=60, deadline=None)
@given(num=st.integers(1, 60), batch=st.integers(1, 20), micro=st.integers(1, 20), world=st.integers(1, 5))
def test_every_epoch_holds_every_sample_once_on_any_number_of_ranks(num, batch, micro, world):
    batch = min(batch, num)
    ranks = [
        Order(num_samples=num, global_batch=batch, micro_batch=micro, seed=3, rank=rank, world=world)
        for rank in range(world)
    ]
    steps = ranks[0].steps_per_epoch
    for epoch in (0, 1):
        seen = []
        for step in range(epoch * steps, (epoch + 1) * steps):
            counts = {len(one.chunks(step)) for one in ranks}
            assert len(counts) == 1, "ranks must agree on the number of micro batches"
            chunks = [chunk for one in ranks for chunk in one.chunks(step)]
            assert all(len(chunk.indices) <= micro for chunk in chunks)
            seen += [index for chunk in chunks if not chunk.weightless for index in chunk.indices]
        assert sorted(seen) == list(range(num))


def test_the_global_batches_do_not_depend_on_the_micro_batch_or_the_ranks():
    def batches(**changes):
        world = changes.get("world", 1)
        ranks = [order(**changes, rank=rank) for rank in range(world)]
        return [
            [i for one in ranks for c in one.chunks(step) if not c.weightless for i in c.indices] for step in range(14)
        ]

    expected = batches()
    assert batches(micro_batch=1) == expected
    assert batches(micro_batch=8) == expected
    assert batches(world=3) == expected


def test_epochs_and_seeds_differ():
    one = order()
    assert one.indices(0, 0, 50) != one.indices(1, 0, 50)
    assert one.indices(0, 0, 50) != order(seed=8).indices(0, 0, 50)
    assert one.indices(0, 0, 50) == order().indices(0, 0, 50)


def test_the_last_global_batch_is_smaller_and_the_next_step_is_the_next_epoch():
    one = order()
    assert one.steps_per_epoch == 7
    assert one.span(6) == (0, 48, 50)
    assert one.span(7) == (1, 0, 8)
    assert one.samples_before(7) == 50
    assert one.samples_in(6) == 2


def test_an_evaluation_is_in_the_order_of_the_data_set():
    assert order(shuffled=False).indices(0, 4, 8) == (4, 5, 6, 7)


def test_sample_seeds_are_63_bits_and_all_different():
    seeds = {sample_seed(seed, epoch, k) for seed in range(3) for epoch in range(3) for k in range(500)}
    assert len(seeds) == 4500
    assert all(0 <= seed < 2**63 for seed in seeds)


@pytest.mark.parametrize(
    ("micro", "world", "num", "expected"),
    [
        (16, 1, 10_000, 32),  # never below the reference
        (100, 1, 10_000, 100),  # what the device holds
        (4096, 1, 100_000, 256),  # at most 8 times the reference
        (4096, 1, 5_000, 100),  # at most a fiftieth of the data set
        (64, 4, 100_000, 256),
        (64, 1, 20, 20),  # never more than there is
    ],
)
def test_auto_global_batch(micro, world, num, expected):
    assert auto_global_batch(reference=32, micro_batch=micro, world=world, num_samples=num) == expected


def test_accumulation_counts_the_busiest_rank():
    assert accumulation(10, 3, 2) == 2
    assert accumulation(32, 32, 1) == 1


def test_later_epochs_take_no_more_memory_than_the_second():
    """A data set of 200,000 samples: under 5 bytes for each of two epochs, whatever their number."""
    one = order(num_samples=200_000)
    tracemalloc.start()
    held = []
    for epoch in range(5):
        one.indices(epoch, 0, 1)
        held.append(tracemalloc.get_traced_memory()[0])
        if epoch == 1:
            tracemalloc.reset_peak()
            highest = 0
        elif epoch > 1:
            highest = max(highest, tracemalloc.get_traced_memory()[1])
    tracemalloc.stop()
    assert held[4] <= held[1] + 4096
    assert held[1] < 200_000 * 5 * 2
    assert highest < 200_000 * 4 * 4


def test_an_epoch_that_was_let_go_comes_back_the_same():
    one = order()
    first = one.indices(0, 0, 50)
    for epoch in range(1, 5):
        one.indices(epoch, 0, 1)
    assert one.indices(0, 0, 50) == first
