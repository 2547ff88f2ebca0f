import math

import pytest

from gpudoc.tune.model.losses import BOUNDS, Reference, agree, explain_losses, percent

PLAIN = Reference((2.0, 1.5, 1.0))


def test_the_largest_difference_of_any_step_over_the_mean_loss_decides():
    found = PLAIN.compare((2.0, 1.53, 1.0), 0.021)
    assert found.difference == pytest.approx(0.03 / 1.5)
    assert (found.steps, found.bound) == (3, 0.021)
    assert agree(found)
    assert not agree(PLAIN.compare((2.0, 1.5, 1.04), 0.02))
    assert explain_losses(found) == "losses of the first 3 steps differ by 2 % (2.1 % allowed)"


@pytest.mark.parametrize("wrong", [(2.0, math.nan), (2.0, 1.5, math.inf), (2.0,), ()])
def test_a_loss_that_is_not_finite_or_steps_that_changed_nothing_agree_with_nothing(wrong):
    found = PLAIN.compare(wrong, 1.0)
    assert found.difference is None
    assert not agree(found)
    assert "not finite" in explain_losses(found)


@pytest.mark.parametrize("reference", [(2.0, math.nan), ()])
def test_where_the_reference_is_not_finite_nothing_is_taken_for_equal(reference):
    found = Reference(reference).compare((2.0, 1.5, 1.0), 1.0)
    assert found is None
    assert not agree(found)
    assert "could not be compared" in explain_losses(found)


def test_what_dropout_alone_does_is_allowed_on_top():
    drawing = Reference((2.0, 1.5, 1.0), again=(2.0, 1.5, 1.03))
    assert drawing.chance == pytest.approx(3 * 0.02)
    found = drawing.compare((2.0, 1.5, 1.1), 0.02)
    assert found.bound == pytest.approx(0.08)
    assert agree(found)
    assert not agree(drawing.compare((2.0, 1.5, 1.2), 0.02))
    assert Reference((2.0, 1.5, 1.0), again=(math.nan,)).compare((2.0, 1.5, 1.0), 1.0) is None


def test_losses_around_zero_are_held_against_their_mean_size():
    found = Reference((0.5, 0.0, -0.5)).compare((0.5, 0.001, -0.5), 0.01)
    assert found.difference == pytest.approx(0.003)
    assert Reference((0.0, 0.0, 0.0)).compare((0.0, 0.0, 0.0), 0.0).difference == 0.0


def test_coarser_formats_allow_more():
    assert BOUNDS["fp32"] < BOUNDS["tf32"] < BOUNDS["bf16"]
    assert [percent(share) for share in (0.0, 1e-7, 0.0031, 0.02)] == ["0 %", "< 0.001 %", "0.31 %", "2 %"]
