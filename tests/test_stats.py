import random

import pytest

from gpudoc.stats import fit_line, median, median_interval, quantile, steady_slope


def test_quantiles_interpolate():
    assert quantile([4, 1, 3, 2], 0.5) == 2.5
    assert quantile([1, 2, 3], 0.0) == 1
    assert quantile([1, 2, 3], 1.0) == 3
    assert median([7]) == 7


def test_no_values_have_no_median():
    with pytest.raises(ValueError, match="no values"):
        median([])


def test_the_interval_of_the_median_holds_the_truth_about_95_times_in_100():
    generator = random.Random(1)
    hits = 0
    for _ in range(400):
        low, high = median_interval([generator.gauss(10, 2) for _ in range(25)])
        hits += low <= 10 <= high
    assert hits >= 0.9 * 400


def test_few_values_give_their_whole_range():
    assert median_interval([3, 1, 2]) == (1, 3)


def test_a_line_through_exact_points_has_no_residual():
    line = fit_line([(1, 5), (2, 7), (4, 11)])
    assert (line.slope, line.intercept) == (pytest.approx(2), pytest.approx(3))
    assert line.residual == pytest.approx(0)
    assert line.at(10) == pytest.approx(23)


def test_one_x_makes_no_line():
    with pytest.raises(ValueError, match="two distinct"):
        fit_line([(1, 5), (1, 7)])


def test_a_slope_that_one_wild_point_does_not_move():
    slope = steady_slope([(x, 3.0 * x) for x in range(7)] + [(7, 500.0)])
    assert slope.value == 3.0
    assert slope.low == 3.0
    flat = steady_slope([(x, (0, 3, 1, 2)[x % 4]) for x in range(12)])
    assert flat.low < 0 < flat.high
    with pytest.raises(ValueError, match="two distinct x"):
        steady_slope([(1, 2.0), (1, 3.0)])
