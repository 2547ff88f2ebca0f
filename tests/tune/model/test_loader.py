"""The queue of workers: what it predicts, what it allows, and what it refuses."""

from __future__ import annotations

import dataclasses

import pytest

from gpudoc.tune.model import loader as model
from gpudoc.tune.model.loader import LoaderBounds, LoaderCosts, LoaderSetting

MIB = 2**20


def costs(**changes) -> LoaderCosts:
    plain = LoaderCosts(
        batch_s=(0.08,) * 50,
        worker_cpu_s=0.08,
        main_s=0.001,
        step_s=0.019,
        step_cpu_s=0.019,
        batch_bytes=4 * MIB,
        worker_private_bytes=20 * MIB,
    )
    return dataclasses.replace(plain, **changes)


@pytest.mark.parametrize(("workers", "period"), [(1, 0.08), (2, 0.04), (3, 0.08 / 3), (4, 0.02), (8, 0.02)])
def test_the_queue_runs_at_the_pace_of_its_slower_side(workers, period):
    simulated = model.simulate(costs(), LoaderSetting(num_workers=workers))
    assert simulated == pytest.approx(period, rel=0.01)


def test_without_workers_loading_and_step_follow_each_other():
    assert model.predict_period(costs(), LoaderSetting(num_workers=0), 8) == pytest.approx(0.099)


def test_enough_cpus_need_the_step_over_batch_ratio_of_workers():
    assert model.fewest_workers(costs(), LoaderBounds(cpus=16), pin_memory=False).num_workers == 4


def test_waiting_workers_may_outnumber_the_cpus():
    waiting = costs(worker_cpu_s=0.002)
    assert model.fewest_workers(waiting, LoaderBounds(cpus=2), pin_memory=False).num_workers == 4


def test_busy_workers_may_not():
    """Two CPUs: 0.08 s of loading and 0.019 s of step cannot go faster than 0.05 s a step, which two workers reach."""
    bounds = LoaderBounds(cpus=2)
    chosen = model.fewest_workers(costs(), bounds, pin_memory=False)
    assert chosen.num_workers == 2
    assert model.predict_period(costs(), LoaderSetting(num_workers=16), 2) == pytest.approx(0.05)


def test_a_quota_of_half_a_cpu_counts():
    assert model.cpu_period(costs(), 0.5) == pytest.approx(0.2)


def test_the_count_is_capped_at_sixteen_or_twice_the_cpus():
    slow = costs(batch_s=(10.0,) * 50, worker_cpu_s=0.001)
    assert model.fewest_workers(slow, LoaderBounds(cpus=2), pin_memory=False).num_workers == 16
    assert model.fewest_workers(slow, LoaderBounds(cpus=20), pin_memory=False).num_workers == 40


def test_shm_bounds_the_batches_in_flight_and_prefetch_gives_way_first():
    tight = LoaderBounds(cpus=16, shm_bytes=6 * 4 * MIB)
    chosen = model.fewest_workers(costs(), tight, pin_memory=False)
    assert chosen == LoaderSetting(num_workers=4, prefetch_factor=1)
    assert (chosen.batches_ahead + 1) * 4 * MIB <= tight.shm_bytes
    assert model.limit_broken(LoaderSetting(num_workers=4), costs(), tight) == "/dev/shm"


def test_memory_bounds_workers_by_their_private_pages():
    tight = LoaderBounds(cpus=16, ram_bytes=70 * MIB)
    chosen = model.fewest_workers(costs(), tight, pin_memory=False)
    assert chosen.num_workers == 2
    assert model.ram_needed_bytes(chosen, costs()) <= tight.ram_bytes
    assert model.limit_broken(LoaderSetting(num_workers=3, prefetch_factor=1), costs(), tight) == "memory"


def test_pinned_copies_need_memory_too():
    pageable, pinned = LoaderSetting(num_workers=2), LoaderSetting(num_workers=2, pin_memory=True)
    assert model.ram_needed_bytes(pinned, costs()) - model.ram_needed_bytes(pageable, costs()) == 4 * 4 * MIB


def test_where_no_worker_fits_there_is_none():
    assert model.fewest_workers(costs(), LoaderBounds(cpus=4, shm_bytes=MIB), pin_memory=False).num_workers == 0


def test_even_times_need_no_more_prefetch():
    setting, gain = model.choose_prefetch(costs(), LoaderSetting(num_workers=4), LoaderBounds(cpus=16))
    assert setting.prefetch_factor == 2
    assert gain == pytest.approx(0, abs=0.01)


def test_rare_slow_batches_ask_for_more_prefetch_unless_memory_forbids():
    jumpy = costs(batch_s=(0.03,) * 45 + (0.5,) * 5, worker_cpu_s=0.001)
    start = LoaderSetting(num_workers=6)
    chosen, _ = model.choose_prefetch(jumpy, start, LoaderBounds(cpus=16))
    assert chosen.prefetch_factor > 2
    assert model.simulate(jumpy, chosen) < 0.95 * model.simulate(jumpy, start)
    tight = LoaderBounds(cpus=16, shm_bytes=13 * 4 * MIB)
    assert model.choose_prefetch(jumpy, start, tight)[0] == start


def test_resampling_shows_the_slow_samples_that_few_batches_hide():
    times = model.resample_batches([0.001] * 99 + [1.0], 10, 0.002, 1000)
    slow = sum(t > 0.5 for t in times) / len(times)
    assert slow == pytest.approx(1 - 0.99**10, abs=0.03)
    assert min(times) == pytest.approx(0.012)


def test_waiting_is_what_is_not_cpu():
    assert costs(worker_cpu_s=0.03).wait_s == pytest.approx(0.05)
    assert costs(worker_cpu_s=0.09).wait_s == 0


@pytest.mark.parametrize(
    ("count", "up", "beside"), [(1, True, 2), (2, True, 3), (8, True, 12), (1, False, 0), (2, False, 1), (8, False, 5)]
)
def test_neighbours_are_one_apart_where_counts_are_small(count, up, beside):
    assert model.neighbour(count, up=up) == beside
