import pytest

from gpudoc.tune.model.speed import fastest, fit_step_time, sizes_to_time, smallest_as_fast
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


def test_sizes_end_with_the_largest_of_use_and_hold_the_reference():
    assert sizes_to_time(reference=32, largest=1000, useful=256) == (8, 16, 32, 64, 128, 256)
    assert sizes_to_time(reference=32, largest=20, useful=256) == (8, 16, 20)
    assert sizes_to_time(reference=1, largest=1, useful=8) == (1,)
    many = sizes_to_time(reference=8, largest=100_000, useful=100_000)
    assert len(many) == 6
    assert 8 in many
    assert many[-1] == 100_000
