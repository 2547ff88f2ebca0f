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
