"""What is measured again: once, twice, or not at all; the rule with planted trials."""

import pytest

from gpudoc.tune.search.repetition import RUNS, Repetition, wins
from gpudoc.tune.trial.messages import End, Point, Trial, TrialRequest


def trial(others=0.0, *, kind="speed", step_s=0.1, seconds=2.0, end=End.FITS, repeat=0):
    return Trial(
        request=TrialRequest(kind=kind, batches=(8,), repeat=repeat),
        end=end,
        points=(Point(batch=8, step_s=(step_s,) * 8),),
        measured={"other_cpus": others, "busy_share": 1.0},
        seconds=seconds,
    )


class Plays:
    """Each run is the next of the planted trials; `asked` are the requests of those that were asked for by one."""

    def __init__(self, *trials):
        self.trials, self.said, self.asked = list(trials), [], []

    def run(self, request=None):
        self.asked.append(request)
        return self.trials.pop(0)

    def best(self, again, budget_s=60.0):
        return again.least_disturbed(self.run, budget_s=budget_s, say=self.said.append)


@pytest.mark.parametrize(
    ("trials", "others", "left"),
    [
        ([trial(0.0), trial(9.0)], 0.0, 1),
        ([trial(2.0, kind="fit"), trial(0.0)], 2.0, 1),
        ([trial(2.0, end=End.OOM_HOST), trial(0.0)], 2.0, 1),
        ([trial(2.0), trial(0.0), trial(9.0)], 0.0, 1),
        ([trial(2.0), trial(1.0), trial(3.0), trial(0.0)], 1.0, 1),
        # what ends badly on the second run is not believed
        ([trial(2.0), trial(0.0, end=End.HANG), trial(1.0)], 1.0, 0),
    ],
    ids=["quiet", "tells no speed", "does not fit", "once more", "least of three", "fails again"],
)
def test_the_least_disturbed_of_up_to_three_stands(trials, others, left):
    plays = Plays(*trials)
    assert plays.best(Repetition()).measured["other_cpus"] == others
    assert len(plays.trials) == left


def test_a_machine_that_stayed_busy_is_asked_once_from_then_on():
    again = Repetition()
    Plays(*[trial(2.0)] * 3).best(again)
    plays = Plays(trial(2.0), trial(0.0))
    assert plays.best(again).measured["other_cpus"] == 2.0
    assert plays.said == []


def test_a_timing_that_a_hypervisor_disturbed_gives_way_to_one_that_nobody_did():
    stolen = trial().model_copy(update={"measured": {"other_cpus": 0.0, "stolen_share": 0.3}})
    quiet = stolen.model_copy(update={"measured": {"other_cpus": 0.1, "stolen_share": 0.0}})
    plays = Plays(stolen, quiet)
    assert plays.best(Repetition()).measured == {**quiet.measured, RUNS: 2.0}
    assert plays.said == ["  a hypervisor took up to 30% of the CPU time: measured again"]


def test_all_that_is_measured_again_stays_within_its_share_of_the_budget():
    again, run = Repetition(), [trial(1.0), trial(0.0)]
    # 2 s each: of 40 s three are within the share, of which each call takes one
    for repeats in (1, 1, 1, 0):
        plays = Plays(*run)
        plays.best(again, budget_s=40.0)
        assert len(plays.said) == repeats


def test_nothing_is_measured_again_that_could_not_end_in_the_time_that_is_left():
    plays = Plays(trial(2.0, seconds=3.0), trial(0.0))
    Repetition().least_disturbed(plays.run, budget_s=60.0, say=plays.said.append, left_s=lambda: 2.5)
    assert len(plays.trials) == 1


def test_what_is_faster_beside_others_has_to_be_so_twice():
    plain, other = trial(1.0), trial(0.0, step_s=0.05)
    slow, quick = Plays(trial(step_s=0.1), trial(step_s=0.2)), Plays(trial(step_s=0.1), trial(step_s=0.05))
    assert not wins(other, plain, slow.run)
    assert wins(other, plain, quick.run)
    # the plain one first, each once more
    assert [request.repeat for request in quick.asked] == [1, 1]


def test_what_is_faster_undisturbed_is_held_once_more_against_the_plainer_one_and_what_is_slower_is_not():
    quiet, plays = Plays(trial()), Plays()
    assert wins(trial(step_s=0.05), trial(repeat=2), quiet.run)
    assert [request.repeat for request in quiet.asked] == [3]
    assert not wins(trial(1.0, step_s=0.2), trial(1.0), plays.run)


def test_what_slowed_the_plainer_one_alone_and_shows_in_no_counter_decides_nothing():
    over = Plays(trial(step_s=0.05))
    assert not wins(trial(step_s=0.05), trial(step_s=0.1), over.run)


def test_without_a_second_look_at_the_plainer_one_nothing_is_faster():
    assert not wins(trial(step_s=0.05), trial(step_s=0.1), Plays(trial(end=End.HANG)).run)


def test_what_runs_where_the_plainer_one_does_not_wins_at_once():
    assert wins(trial(), trial(end=End.OOM_HOST), Plays().run)
