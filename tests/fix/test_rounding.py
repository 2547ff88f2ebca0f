"""A change that only rounds otherwise is held against control runs, and never called equal."""

from dataclasses import replace

import pytest

from gpudoc.fix.model import Claim
from gpudoc.fix.proof import describe, judge
from gpudoc.fix.rounding import judge_by_controls, judge_rounding, may_be_rounding
from tests.fix.test_proof import CANDIDATE, STATE, run

FUSED = replace(CANDIDATE, rewrite="fused-optimizer", claim=Claim.ROUNDING)


def lossy(seconds=1.0, *, grows=0.0, first=0.0, **changes):
    """A run whose losses part from 1.0, step by step further."""
    losses = tuple(1.0 + first + grows * index for index in range(40))
    state = {**STATE, "parameters": f"p{grows}{first}"}
    roots = tuple(map(str, losses))
    return run(seconds, steps=40, **{"losses": losses, "roots": roots, "state": state, **changes})


BEFORE = [lossy(2.0), lossy(2.1)]
CONTROLS = [lossy(2.0, grows=1e-6), lossy(2.0, grows=-1e-6)]


def rounded(after, controls=None, before=None):
    before = before or BEFORE
    return judge_rounding(judge(FUSED, before, after, boundaries=0), before, after, controls or CONTROLS)


def test_losses_within_what_one_bit_makes_of_them_are_rounding_and_not_called_equal():
    found = rounded([lossy(grows=2e-6), lossy(grows=2e-6)])
    assert (found.claim, found.launches, found.is_gain) == (Claim.ROUNDING, 6, True)
    text = describe(found)
    assert "losses up to 7.8e-05 apart over 40 backward calls, of 1.2e-04 that control runs allow" in text
    assert "parameters" not in text


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (lossy(grows=4e-6), "one bit in the initial weights makes"),
        (lossy(first=1e-5), "the loss of backward call 1 "),
        (lossy(grows=2e-6, batches=("other",) * 40), "the batches differ"),
        (lossy(grows=2e-6, state={**STATE, "torch's generator": "other"}), "torch's generator differs"),
        (lossy(grows=2e-6, losses=(None,) * 40), "not every loss is one finite number"),
        (lossy(grows=2e-6, losses=(1.0,) * 10), "it takes 20 losses"),
    ],
)
def test_what_lies_further_away_or_differs_otherwise_is_another_training(after, words):
    found = rounded([after, after])
    assert found.claim is Claim.CHANGES
    assert words in found.why


def test_a_change_of_the_batches_shape_is_held_against_the_losses_alone():
    shorter = [lossy(grows=2e-6, batches=("shorter",) * 40)] * 2
    candidate = replace(FUSED, rewrite="pad-to-longest", other_batches=True)
    proof = judge(candidate, BEFORE, shorter, boundaries=0)
    found = judge_rounding(proof, BEFORE, shorter, CONTROLS)
    assert found.claim is Claim.ROUNDING
    assert "allow; random numbers are bit-identical" in describe(found)
    # the control runs have the batches of the script as it is
    others = [replace(one, batches=("other",) * 40) for one in CONTROLS]
    assert "the batches differ" in judge_rounding(proof, BEFORE, shorter, others).why
    far = [lossy(grows=4e-6, batches=("shorter",) * 40)] * 2
    far_proof = judge(candidate, BEFORE, far, boundaries=0)
    assert judge_rounding(far_proof, BEFORE, far, CONTROLS).claim is Claim.CHANGES


@pytest.mark.parametrize(
    ("grows", "has_time", "asked", "claim"),
    [
        (2e-6, True, "up down", Claim.ROUNDING),
        (4e-6, True, "up down out in", Claim.ROUNDING),
        (5e-6, True, "up down out in", Claim.CHANGES),
        (4e-6, False, "up down", Claim.CHANGES),
        (9e-6, True, "up down", Claim.CHANGES),
    ],
)
def test_what_lies_just_outside_of_two_control_runs_is_held_against_four(grows, has_time, asked, claim):
    after, nudges = [lossy(grows=grows)] * 2, []

    def control(nudge):
        nudges.append(nudge)
        return lossy(2.0, grows={"up": 1e-6, "down": -1e-6, "out": 1.5e-6, "in": -1e-6}[nudge])

    proof = judge(FUSED, BEFORE, after, boundaries=0)
    found = judge_by_controls(proof, BEFORE, after, control, has_time=lambda: has_time)
    assert (" ".join(nudges), found.claim) == (asked, claim)


def test_over_the_first_steps_no_control_run_allows_more_than_a_thousandth():
    wild = [lossy(first=0.5), lossy(first=-0.5)]
    found = rounded([lossy(first=0.01), lossy(first=0.01)], wild)
    assert found.claim is Claim.CHANGES
    assert "more than 1e-03" in found.why


@pytest.mark.parametrize(
    ("controls", "words"),
    [
        ([lossy(2.0), lossy(2.0)], "makes no difference"),
        ([lossy(failure="ValueError"), lossy()], "a control run failed"),
    ],
)
def test_without_a_bound_nothing_is_offered_and_the_reason_is_said(controls, words):
    found = rounded([lossy(grows=1e-6), lossy(grows=1e-6)], controls)
    assert found.claim is Claim.CHANGES
    assert "no bound on its rounding could be determined" in found.why
    assert words in found.why


def test_control_runs_that_come_to_no_end_leave_the_question_open():
    found = rounded([lossy(grows=1e-6), lossy(grows=1e-6)], [lossy(grows=1e-6), lossy(grows=1e-6, timed_out=True)])
    assert (found.claim, found.is_open) == (Claim.CHANGES, True)
    assert "no time for the control runs" in found.why


def test_a_script_that_differs_from_itself_has_no_bound():
    before = [lossy(2.0), lossy(2.0, grows=1e-6)]
    after = [lossy(grows=1e-6), lossy(grows=1e-6)]
    assert rounded(after, before=before).claim is None


def test_files_that_differ_are_behaviour():
    found = rounded([lossy(grows=1e-6, files={"/x/a.pt": 9}), lossy(grows=1e-6, files={"/x/a.pt": 9})])
    assert found.claim is Claim.BEHAVIOUR


def test_control_runs_are_made_only_for_what_may_be_rounding_and_gains():
    def asked(candidate, after):
        return may_be_rounding(judge(candidate, BEFORE, after, boundaries=0), BEFORE, after)

    near = [lossy(grows=1e-6), lossy(grows=1e-6)]
    assert asked(FUSED, near)
    assert not asked(CANDIDATE, near)
    assert not asked(FUSED, [lossy(3.0, grows=1e-6), lossy(3.0, grows=1e-6)])
    assert not asked(FUSED, [run(1.0, steps=39), run(1.0, steps=39)])
