"""What recorded runs prove: equal bit by bit or not, faster beyond doubt or not, alive or not."""

from dataclasses import replace
from pathlib import Path

import pytest

from gpudoc.fix.launches import RecordedRun, masked, numbers_in
from gpudoc.fix.model import Candidate, Claim
from gpudoc.fix.proof import describe, judge, judge_alive
from gpudoc.process.shortage import Shortage
from gpudoc.script.messages import StateRecord

CANDIDATE = Candidate("anomaly-off", Path("train.py"), 4, Claim.EXACT, "a\n", "b\n")
STATE = {"parameters": "p", "torch's generator": "g"}


def run(seconds=1.0, *, steps=20, peak=1000, **changes):
    recorded = {
        "at": 0.0,
        "steps": steps,
        "roots": ("r",) * steps,
        "losses": (),
        "state": STATE,
        "files": {},
        "seconds": 0.0,
    }
    recorded |= {name: changes.pop(name) for name in list(changes) if name in recorded}
    known = {
        "record": StateRecord(**recorded), "batches": ("b",) * steps, "steps": steps, "seconds": seconds,
        "peak_bytes": peak, "printed": ("loss #",), "ended": False,
    }  # fmt: skip
    return RecordedRun(**{**known, **changes})


def proof(before, after, candidate=CANDIDATE):
    return judge(candidate, before, after, boundaries=1)


def test_equal_trainings_of_which_each_changed_one_is_faster_are_a_proved_change():
    found = proof([run(2.0), run(2.2)], [run(1.0), run(1.1)])
    assert (found.claim, found.why, found.is_gain) == (Claim.EXACT, "", True)
    assert describe(found) == (
        "2.00 times as fast (1.82 to 2.20); losses, batches, parameters, optimizer and random numbers are "
        "bit-identical "
        "over 20 steps and 1 epoch boundary (4 launches)"
    )


def test_where_parts_of_launches_overlap_the_bound_of_whole_launches_is_said_first():
    found = proof([run(2.0, pieces_s=(0.05, 0.2))] * 2, [run(1.0, pieces_s=(0.02, 0.1))] * 2)
    assert describe(found).startswith(
        "2.00 times as fast, at least 2.00 between whole launches (parts of them: 0.50 to 10.00); "
    )


def test_one_changed_launch_that_is_no_faster_leaves_the_gain_in_doubt():
    found = proof([run(2.0), run(1.02)], [run(1.0), run(1.0)])
    assert found.claim is Claim.EXACT
    assert not found.is_gain


def test_the_interval_is_as_wide_as_the_speed_of_the_launches_goes_up_and_down():
    slow, fast = [run(2.0, pieces_s=(0.08, 0.12))] * 2, [run(1.0, pieces_s=(0.04, 0.06))] * 2
    found = proof(slow, fast).gain
    assert found is not None
    assert (found.middle, found.low, found.high) == pytest.approx((2.0, 0.08 / 0.06, 3.0))
    # whether it gains is a matter of whole launches
    wide = [run(1.0, pieces_s=(0.04, 0.09))] * 2
    assert proof(slow, wide).is_faster
    assert proof(slow, wide).gain.low < 1


def test_the_proof_says_whose_batches_were_compared_and_which_steps_were_timed():
    said = describe(proof([run(2.0, digested=7)] * 2, [run(1.0, digested=7)] * 2))
    assert said.startswith("2.00 times as fast from step 8 on (")
    assert said.endswith(
        "losses, parameters, optimizer and random numbers are bit-identical over 20 steps and 1 epoch boundary, "
        "and the batches of the first 7 (4 launches)"
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"roots": ("r",) * 7 + ("other",) + ("r",) * 12}, "the loss of backward call 8"),
        ({"batches": ("b",) * 2 + ("other",) * 18}, "the batch of step 3"),
        ({"state": {**STATE, "parameters": "other"}}, "parameters at the end"),
        ({"state": {**STATE, "torch's generator": "other"}}, "torch's generator at the end"),
        ({"roots": ("r",) * 19}, "how often backward is called"),
    ],
)
def test_a_training_that_differs_anywhere_is_another_one_however_fast(changes, words):
    found = proof([run(2.0), run(2.0)], [run(1.0), run(1.0, **changes)])
    assert found.claim is Claim.CHANGES
    assert words in found.why


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"files": {"/x/a.pt": 9}}, "it writes different files: with /x/a.pt"),
        ({"printed": ("other",)}, "different lines"),
    ],
)
def test_equal_trainings_that_write_or_print_otherwise_are_a_change_of_behaviour(changes, words):
    found = proof([run(2.0), run(2.0)], [run(1.0, **changes), run(1.0, **changes)])
    assert found.claim is Claim.BEHAVIOUR
    assert words in found.why


def test_a_printed_result_that_differs_is_a_change_of_behaviour_and_a_time_is_not():
    def printing(*numbers):
        return run(numbers=numbers)

    before = [printing("0.8125", "12.41"), printing("0.8125", "12.67")]
    assert proof(before, [printing("0.8125", "3.052"), printing("0.8125", "3.117")]).claim is Claim.EXACT
    found = proof(before, [printing("0.8125", "3.052"), printing("0.8200", "3.117")])
    assert (found.claim, found.why) == (Claim.BEHAVIOUR, "it prints 0.8200 where it printed 0.8125")
    assert proof([printing("17:24")] * 2, [printing("17:25")] * 2).claim is Claim.EXACT
    # of a single digit nobody knows whether it is a time
    assert proof([printing("3"), printing("3")], [printing("2"), printing("2")]).claim is Claim.EXACT


def test_the_numbers_of_an_output_are_those_that_are_masked():
    assert numbers_in("epoch 1 loss 0.5\n 40%|████    | 4/10\r 100%|██████████| 10/10\n") == (
        "1",
        "0.5",
        "100",
        "10",
        "10",
    )


def test_nothing_is_called_equal_where_the_script_is_not_equal_to_itself():
    other = run(2.0, state={**STATE, "parameters": "other"})
    found = proof([run(2.0), other], [run(1.0), run(1.0)])
    assert found.claim is None
    assert "does not repeat itself" in found.why


def test_a_claim_is_never_better_than_that_of_the_rewrite():
    seldom = replace(CANDIDATE, claim=Claim.BEHAVIOUR)
    assert proof([run(2.0), run(2.0)], [run(1.0), run(1.0)], seldom).claim is Claim.BEHAVIOUR


def test_less_memory_is_a_gain_where_every_changed_launch_needs_less():
    assert proof([run(peak=1000), run(peak=1010)], [run(peak=700), run(peak=720)]).saves
    assert not proof([run(peak=1000), run(peak=730)], [run(peak=700), run(peak=720)]).saves


def test_a_launch_without_time_proves_nothing_and_leaves_the_question_open():
    found = proof([run(), run()], [run(), run(timed_out=True)])
    assert (found.claim, found.is_open, found.is_gain) == (None, True, False)


def test_a_change_that_fails_is_told_with_its_last_words():
    assert "NameError: x" in proof([run()], [run(failure="NameError: x")]).why


DIED = run(steps=10, shortage=Shortage.HOST)


def test_a_script_lives_that_runs_three_times_as_far_with_equal_losses_until_it_died():
    found = judge_alive(CANDIDATE, DIED, run(steps=30))
    assert (found.claim, found.lives, found.steps) == (Claim.EXACT, True, 9)
    assert describe(found).startswith("it no longer runs out of memory; ")


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (run(steps=20), "three times as many steps"),
        (run(steps=30, shortage=Shortage.HOST), "also runs out of memory"),
        (run(steps=30, failure="ValueError"), "ValueError"),
    ],
)
def test_what_does_not_run_three_times_as_far_is_no_proof(after, words):
    found = judge_alive(CANDIDATE, DIED, after)
    assert (found.claim, found.lives) == (None, False)
    assert words in found.why


def test_losses_that_differ_before_the_death_are_another_training():
    assert judge_alive(CANDIDATE, DIED, run(steps=30, roots=("x",) * 30)).claim is Claim.CHANGES


def test_numbers_durations_and_bars_are_not_compared():
    one = masked("epoch 1 loss 0.5 in 59s\n 40%|████    | 4/10\r 100%|██████████| 10/10\n")
    other = masked("epoch 2 loss 1.25e-3 in 1m 02s\n 100%|██████████| 10/10\n")
    assert one == other
    assert masked("saved a.pt") != masked("saved b.pt")


_WARNS = (
    "/home/me/train.py:97: UserWarning: Converting a tensor with requires_grad=True\n"
    "Consider using tensor.detach() first. (Triggered at methods.cpp:822.)\n  % (epoch + 1, loss)\n"
)
_WARNS_ELSE = "/home/me/train.py:99: UserWarning: scheduler before optimizer\n  scheduler.step()\n"


@pytest.mark.parametrize(
    ("before", "after", "claim"),
    [
        (_WARNS, "", Claim.EXACT),
        (_WARNS, _WARNS.replace("97", "98"), Claim.EXACT),
        ("", _WARNS, Claim.BEHAVIOUR),
        (_WARNS, _WARNS_ELSE, Claim.BEHAVIOUR),
        ("saved best\n", "", Claim.BEHAVIOUR),
    ],
    ids=["goes away", "stays", "comes", "another comes", "no warning"],
)
def test_a_warning_may_go_away_with_what_it_warned_of(before, after, claim):
    def printing(text):
        printed = f"loss 0.8125\n{text}accuracy 0.5125\n"
        return run(printed=masked(printed), numbers=numbers_in(printed))

    assert proof([printing(before)] * 2, [printing(after)] * 2).claim is claim


@pytest.mark.parametrize(
    ("rewrite", "needed"), [("persistent-workers", 2), ("no-workers", 2), ("sample-each-epoch", 1)]
)
def test_what_acts_at_the_end_of_an_epoch_is_proved_across_as_many_as_it_needs_or_not_at_all(rewrite, needed):
    candidate = replace(CANDIDATE, rewrite=rewrite)
    for boundaries, claim, is_open in ((needed - 1, None, True), (needed, Claim.EXACT, False)):
        found = judge(candidate, [run(2.0), run(2.2)], [run(1.0), run(1.1)], boundaries=boundaries)
        assert (found.claim, found.is_open) == (claim, is_open)
