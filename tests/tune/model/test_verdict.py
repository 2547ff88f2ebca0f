import pytest

from gpudoc.tune.model.gain import gain_between
from gpudoc.tune.model.scaling import SpeedSpan
from gpudoc.tune.model.verdict import judge

BEFORE = SpeedSpan(100.0, 95.0, 105.0)
FASTER, NEAR, SLOWER = SpeedSpan(150.0, 140.0, 160.0), SpeedSpan(103.0, 90.0, 110.0), SpeedSpan(50.0, 45.0, 55.0)
TRIED = ((6, "lever"), (0, "batch"), (1, "loader setting"))


@pytest.mark.parametrize(
    ("after", "kept_default", "tried", "kind"),
    [
        (FASTER, False, TRIED, "faster"),
        (NEAR, False, TRIED, "none_faster"),
        (SLOWER, False, TRIED, "slower"),
        (SLOWER, True, TRIED, "none_faster"),
        (None, True, TRIED, "none_faster"),
        (None, False, TRIED, "not_compared"),
        (None, True, (), "not_searched"),
        (None, True, ((0, "lever"),), "not_searched"),
    ],
)
def test_nothing_is_said_of_what_was_not_tried(after, kept_default, tried, kind):
    verdict = judge(gain_between(BEFORE, after, kept_default=kept_default), tried, "no time", 90.0)
    assert verdict.kind == kind
    assert all(count for count, _ in verdict.tried)
    assert (verdict.why == "no time") == (kind in ("not_compared", "not_searched"))


def test_the_document_counts_what_was_tried():
    verdict = judge(gain_between(BEFORE, FASTER, kept_default=False), TRIED, "no time", 90.0)
    assert verdict.document() == {
        "kind": "faster",
        "tried": {"lever": 6, "loader_setting": 1},
        "why": None,
        "needed_s": None,
    }
