import itertools
import time

from gpudoc.bench.sampling import (
    MAX_SAMPLES,
    MIN_SAMPLES,
    Row,
    collect_samples,
    host_load,
    is_tight,
    sample_point,
    timed_rate,
)
from tests.bench.host_gpu import HostGpu, bench


def test_warm_up_is_dropped():
    values = itertools.count()
    assert collect_samples(lambda: float(next(values)), 0.0, warm_up=3)[0] == 3.0


def test_equal_samples_end_early_and_wild_ones_use_their_time():
    assert len(collect_samples(lambda: 5.0, 60.0)) == 3 * MIN_SAMPLES
    wild = itertools.cycle([1.0, 9.0, 4.0, 7.0])
    assert len(collect_samples(lambda: next(wild), 60.0)) == MAX_SAMPLES


def test_a_slow_point_ends_with_fewer_samples_when_its_time_is_long_over():
    def slow():
        time.sleep(0.02)
        return 1.0

    assert 1 <= len(collect_samples(slow, 0.02, warm_up=0)) < MIN_SAMPLES


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


def test_the_load_of_the_host_stands_beside_the_samples():
    context: dict[str, float] = {}
    with host_load(context):
        time.sleep(0.06)
    assert context["other_cpus_max"] >= 0
    assert 0 <= context["stolen_share"] <= 1


def test_a_short_span_says_nothing_of_the_host():
    context: dict[str, float] = {}
    with host_load(context):
        pass
    assert context == {}


def test_a_point_carries_its_row_its_round_and_the_clock():
    run = bench(gpu=HostGpu())
    run.round, run.clock_ghz = 2, lambda: 3.25
    reading = sample_point(run, Row(name="x", unit="GB/s", parameters={"threads": 1}), lambda: 7.0, 0.01)
    assert (reading.name, reading.round, reading.samples[0]) == ("x", 2, 7.0)
    assert reading.context["cpu_clock_ghz"] == reading.context["cpu_clock_ghz_max"] == 3.25
    assert reading.began_s <= reading.ended_s
