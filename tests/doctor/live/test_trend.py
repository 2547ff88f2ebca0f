import math
import random

import pytest

from gpudoc.doctor.live.trend import grows

MIB = 1 << 20


def series(function, count=40, every=0.5):
    return [(i * every, int(function(i * every))) for i in range(count)]


def test_a_steady_leak_is_seen_with_its_rate():
    found = grows(series(lambda t: 300 * MIB + 5 * MIB * t))
    assert found is not None
    assert abs(found.bytes_per_s - 5 * MIB) < MIB / 10


def test_a_cache_that_fills_once_is_no_leak():
    assert grows(series(lambda t: 300 * MIB + (200 * MIB if t > 4 else 0))) is None
    assert grows(series(lambda t: 300 * MIB + min(t, 6) * 30 * MIB)) is None


def test_the_sawtooth_of_a_step_is_no_leak():
    assert grows(series(lambda t: 300 * MIB + (t * 2 % 3) * 40 * MIB)) is None


def test_little_growth_or_little_time_says_nothing():
    assert grows(series(lambda t: 4000 * MIB + 0.1 * MIB * t)) is None
    assert grows(series(lambda t: 300 * MIB + 5 * MIB * t, count=5)) is None
    assert grows([]) is None


def test_a_rise_that_is_no_larger_than_its_noise_is_no_leak():
    assert grows(series(lambda t: 360 * MIB + 0.8 * MIB * t + (t * 2 % 4) * 5 * MIB)) is None


def test_few_seconds_are_too_few():
    assert grows(series(lambda t: 300 * MIB + 5 * MIB * t, count=20)) is None


def planted(function, seeds=20, noise=2, work=None):
    """How often of twenty a series with so many MiB of noise is said to grow."""
    found = 0
    for seed in range(seeds):
        chance = random.Random(seed)
        made = series(lambda t, c=chance: (300 + function(t) + c.uniform(-noise, noise)) * MIB)
        found += grows(made, [(t, work(t)) for t, _ in made] if work else ()) is not None
    return found


@pytest.mark.parametrize(("rate", "noise"), [(20, 20), (5, 5), (2, 2), (1, 1)])
def test_leaks_large_and_small_are_seen(rate, noise):
    assert planted(lambda t: rate * t, noise=noise) == 20


@pytest.mark.parametrize(
    "function",
    [
        lambda t: 0.0,
        lambda t: 80 * (1 - math.exp(-t / 3)),
        lambda t: 80 * (1 - math.exp(-t / 6)),
        lambda t: 80 * (1 - math.exp(-t / 12)),
        lambda t: 8 * min(t, 10),
        lambda t: 8 * min(t, 15),
        lambda t: 8 * min(t, 17),
        lambda t: 20 * math.log(1 + t),
        lambda t: 6 * ((t > 3) + (t > 8) + (t > 9) + (t > 16)),
    ],
    ids=["noise", "settles 3", "settles 6", "settles 12", "fills 10", "fills 15", "fills 17", "logarithm", "stairs"],
)
def test_what_settles_fills_or_varies_is_no_leak(function):
    assert planted(function) == 0
    assert planted(lambda t: 0.0, noise=100) == 0


def test_a_loop_that_a_neighbour_slows_down_leaks_per_cpu_second():
    def steps(t):
        return t if t < 10 else 10 + (t - 10) * 0.4

    assert planted(lambda t: 5 * steps(t), work=steps) == 20
    # the same curve with as much work all along is an arena that settles
    assert planted(lambda t: 5 * steps(t), work=lambda t: t) == 0
