import pytest

from gpudoc.tune.model.gain import gain_of, speed_with_data
from gpudoc.tune.trial.messages import End, Point, Trial, TrialRequest


def fed(batch, *step_s, end=End.FITS, ranks=1):
    request = TrialRequest(kind="default", batches=(batch,), ranks=ranks)
    return Trial(request=request, end=end, points=(Point(batch=batch, step_s=step_s),))


def test_the_doubt_spans_the_steps_and_the_repeats():
    span = speed_with_data([fed(10, 1.0, 1.0, 2.0), fed(10, 1.25)])
    assert (span.middle, span.low, span.high) == (9.0, 5.0, 10.0)
    assert speed_with_data([fed(10, 1.0, ranks=4)]).middle == 40.0
    assert speed_with_data([fed(10, 1.0, end=End.OOM_HOST), fed(10)]) is None


def test_a_gain_is_sure_only_where_the_worst_of_one_beats_the_best_of_the_other():
    clear = gain_of([fed(10, 1.0, 1.1)], [fed(30, 1.0, 1.2)], kept_default=False)
    assert clear.is_sure
    assert clear.ratio.low == pytest.approx(2.5)
    assert clear.ratio.high == pytest.approx(3.3)
    near = gain_of([fed(10, 1.0, 1.1)], [fed(10, 0.95, 1.05)], kept_default=False)
    assert near.ratio.middle > 1
    assert not near.is_sure


def test_where_the_default_was_kept_its_speed_is_that_of_the_choice():
    kept = gain_of([fed(10, 1.0)], [fed(10, 2.0)], kept_default=True)
    assert kept.chosen == kept.default
    assert kept.ratio.middle == 0.5
    assert not kept.is_sure
    assert kept.document() == {
        "default": [10.0, 10.0, 10.0],
        "chosen": [10.0, 10.0, 10.0],
        "ratio": [0.5, 0.5, 0.5],
        "kept_default": True,
    }


def test_what_was_not_measured_is_none_and_no_gain():
    nothing = gain_of([], [fed(10, 1.0)], kept_default=False)
    assert nothing.default is nothing.ratio is None
    assert not nothing.is_sure
    assert nothing.document()["ratio"] is None
