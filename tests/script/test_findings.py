from dataclasses import replace

import pytest

from gpudoc.profile.model import Loader
from gpudoc.script.findings import ScriptFindings, is_own
from gpudoc.tune.model.gain import speed_of_launches, times
from gpudoc.tune.trial.messages import End, Trial, TrialRequest
from tests.script.pretended import Pretended, loader, session_of


def trial(rate, end=End.FITS, **measured):
    known = {"mean_step_s": 0.1, **({} if rate is None else {"samples_per_s": rate}), **measured}
    return Trial(request=TrialRequest(kind="joint", batches=()), end=end, how="launch", measured=known)


def look(**built):
    return session_of(Pretended(), built=loader(**built)).runner.look


def gain(defaults, joints):
    return ScriptFindings(look=look(), defaults=defaults, joints=joints).gain.ratio


def test_a_gain_has_the_doubt_of_the_launches_that_are_furthest_apart():
    found = gain([trial(100.0), trial(110.0)], [trial(200.0), trial(220.0)])
    assert found.middle == pytest.approx(2.0)
    assert found.low == pytest.approx(200 / 110)
    assert found.high == pytest.approx(2.2)
    assert times(found) == "2.00 times (1.82 to 2.20)"


def test_a_gain_that_was_measured_once_claims_no_bounds():
    assert times(gain([trial(100.0)], [trial(407.0)])) == "about 4.07 times (each measured once)"


def test_steps_are_compared_where_samples_are_not_known():
    assert speed_of_launches([trial(None)]).middle == pytest.approx(10.0)
    assert speed_of_launches([trial(5.0, end=End.OOM_HOST)]) is None
    assert gain([trial(None)], [trial(None, mean_step_s=0.05)]).middle == pytest.approx(2.0)


def test_nothing_is_gained_without_both_sides():
    assert gain([], [trial(1.0)]) is None
    assert gain([trial(1.0)], [trial(1.0, end=End.HANG)]) is None
    assert ScriptFindings(look=look()).gain.ratio is None


@pytest.mark.parametrize(
    ("feed", "built", "same"),
    [
        (Loader(), {}, True),
        (Loader(prefetch_factor=8), {}, True),
        (Loader(num_workers=2), {}, False),
        (Loader(num_workers=2, persistent_workers=True), {"num_workers": 2, "persistent_workers": True}, True),
        (Loader(num_workers=2, prefetch_factor=4), {"num_workers": 2, "prefetch_factor": 2}, False),
        (Loader(num_workers=2, persistent_workers=True), {"num_workers": 2}, False),
    ],
)
def test_settings_that_the_script_has_anyway_are_its_own(feed, built, same):
    assert is_own(feed, look(**built)) is same


def test_pinning_is_a_setting_on_a_gpu_and_nothing_on_a_cpu():
    there = look(pin_memory=False)
    feed = Loader(num_workers=0, pin_memory=True)
    assert is_own(feed, there)
    assert not is_own(feed, replace(there, device="cuda:0"))
