import pytest

from gpudoc.tune.model.speed import fastest, fit_step_time, is_clearly_faster, pooled, sizes_to_time, smallest_as_fast
from gpudoc.tune.trial.messages import Point


def at(*batches, fixed=0.1, per_sample=0.01):
    return [Point(batch=b, step_s=(fixed + per_sample * b,)) for b in batches]


def test_step_time_and_knee():
    line = fit_step_time(at(8, 16, 32))
    assert line.fixed_s == pytest.approx(0.1)
    assert line.per_sample_s == pytest.approx(0.01)
    assert line.knee() == 190
    assert fit_step_time(at(8)) is None
    assert fit_step_time(at(8, 16, per_sample=0.0)).knee() is None


def test_the_smallest_batch_within_three_percent_of_the_fastest():
    points = [Point(batch=b, step_s=(b / speed,)) for b, speed in ((8, 50), (16, 98), (32, 97.5), (64, 100))]
    assert fastest(points).batch == 64
    assert smallest_as_fast(points).batch == 16
    assert smallest_as_fast([]) is None


def test_from_the_plainer_batch_on_a_larger_one_must_be_faster_beyond_what_steps_differ_by():
    def scattered(batch, speed):
        return Point(batch=batch, step_s=tuple(batch / speed * factor for factor in (0.8, 1.0, 1.2)))

    points = [scattered(8, 70), scattered(32, 90), scattered(64, 100)]
    assert smallest_as_fast(points).batch == 64
    assert smallest_as_fast(points, plain=32).batch == 32
    assert smallest_as_fast([*points[:2], scattered(64, 200)], plain=32).batch == 64
    assert not is_clearly_faster(*at(8, 8))


def test_a_batch_that_was_measured_several_times_is_one_point_with_all_its_steps():
    early, late = Point(batch=8, step_s=(1.0, 2.0)), Point(batch=8, step_s=(3.0,), peak_bytes=7)
    small = Point(batch=4, step_s=(1.0,))
    assert pooled([early, small, late]) == (small, Point(batch=8, step_s=(1.0, 2.0, 3.0), peak_bytes=7))


def test_sizes_end_with_the_largest_of_use_and_hold_the_reference():
    assert sizes_to_time(reference=32, largest=1000, useful=256) == (8, 16, 32, 64, 128, 256)
    assert sizes_to_time(reference=32, largest=20, useful=256) == (8, 16, 20)
    assert sizes_to_time(reference=1, largest=1, useful=8) == (1,)
    many = sizes_to_time(reference=8, largest=100_000, useful=100_000)
    assert len(many) == 6
    assert 8 in many
    assert many[-1] == 100_000
