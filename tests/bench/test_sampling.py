import itertools
from types import SimpleNamespace

import pytest

from gpudoc.bench import sampling
from gpudoc.bench.sampling import (
    LOOK_S,
    MAX_SAMPLES,
    MIN_SAMPLES,
    OtherLoad,
    Row,
    collect_samples,
    is_tight,
    sample_point,
    timed_rate,
)
from gpudoc.process.cpu_load import CpuLoad
from tests.bench.host_gpu import HostGpu, bench


def test_warm_up_is_dropped():
    values = itertools.count()
    assert collect_samples(lambda: float(next(values)), 0.0, warm_up=3)[0] == 3.0


def test_equal_samples_end_early_and_wild_ones_use_their_time():
    assert len(collect_samples(lambda: 5.0, 60.0)) == 3 * MIN_SAMPLES
    wild = itertools.cycle([1.0, 9.0, 4.0, 7.0])
    assert len(collect_samples(lambda: next(wild), 60.0)) == MAX_SAMPLES


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass only when a sample takes them."""
    now = SimpleNamespace(s=0.0)
    monkeypatch.setattr(sampling, "time", SimpleNamespace(perf_counter=lambda: now.s, monotonic=lambda: now.s))
    return now


def slow(clock):
    def once():
        clock.s += 1.0
        return 1.0

    return once


def test_a_slow_point_ends_with_fewer_samples_when_its_time_is_long_over(clock):
    assert len(collect_samples(slow(clock), 2.0, 0, fewest=3, overtime=2.0)) == 5
    assert len(collect_samples(slow(clock), 0.1, 0, fewest=3, overtime=2.0)) == 3
    assert len(collect_samples(slow(clock), 0.1)) == MIN_SAMPLES


@pytest.mark.parametrize("rounds", [1, 2, 3, 5, 7, 9])
def test_the_processes_of_a_run_have_enough_samples_together_however_slow_a_point_is(rounds, clock):
    run = bench(device="cpu", rounds=rounds)
    row = Row(name="x", unit="ms", parameters={})
    total = sum(len(sample_point(run, row, slow(clock), 0.0).samples) for _ in range(rounds))
    assert total >= MIN_SAMPLES
    # and a quick run of many processes takes no more than that
    assert rounds < 5 or total == 2 * rounds


def test_tight_is_about_the_median():
    assert is_tight([100.0, 100.1, 99.9] * 7)
    assert not is_tight([100.0, 120.0, 80.0] * 7)


def test_a_rate_counts_the_work_of_every_repeat():
    calls = []
    once = timed_rate(lambda: calls.append(1), work=10.0, at_least_s=0.0005)
    before = len(calls)
    rate = once()
    repeats = len(calls) - before
    assert repeats > 1
    assert rate > 10.0


class Counted:
    """A meter that counts how often processes are read."""

    reads = 0
    seen = CpuLoad(other_cpus=1.25, other_share=0.3, share=0.9, stolen_share=0.01)

    def read(self):
        Counted.reads += 1
        return self.seen


def test_the_load_of_the_host_stands_beside_the_samples_and_is_read_seldom(monkeypatch):
    now = SimpleNamespace(s=100.0)
    monkeypatch.setattr(sampling, "time", SimpleNamespace(monotonic=lambda: now.s))
    monkeypatch.setattr(sampling, "LoadMeter", Counted)
    Counted.reads = 0
    beside = OtherLoad(Counted())
    # shorter than what the kernel counts: what was seen just before holds
    for _ in range(10):
        now.s += LOOK_S / 20
        assert beside.context() == {"other_cpus_max": 1.25, "stolen_share": 0.01}
    assert Counted.reads == 1
    now.s += LOOK_S
    beside.context()
    assert Counted.reads == 2


def test_what_was_never_seen_of_the_host_is_not_said():
    assert OtherLoad(SimpleNamespace(read=lambda: None)).context() == {}


def test_a_point_carries_its_row_its_round_and_the_clock():
    run = bench(gpu=HostGpu())
    run.round, run.clock_ghz = 2, lambda: 3.25
    reading = sample_point(run, Row(name="x", unit="GB/s", parameters={"threads": 1}), lambda: 7.0, 0.01)
    assert (reading.name, reading.round, reading.samples[0]) == ("x", 2, 7.0)
    assert reading.context["cpu_clock_ghz"] == reading.context["cpu_clock_ghz_max"] == 3.25
    assert reading.began_s <= reading.ended_s
