import math

import pytest

from gpudoc.tune.trial.deadline import Deadline, option_for


class Clock:
    """Stands until it is moved."""

    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return self.now_s


def deadline(budget_s=60.0):
    clock = Clock()
    return Deadline(budget_s=budget_s, since=clock.now_s, clock=clock), clock


def test_what_is_left_ends_at_zero():
    until, clock = deadline()
    clock.now_s += 45.0
    assert (until.spent_s, until.left_s) == (45.0, 15.0)
    clock.now_s += 45.0
    assert (until.spent_s, until.left_s) == (90.0, 0.0)
    assert Deadline().left_s == math.inf


@pytest.mark.parametrize(
    ("usual_s", "expected_s", "patience_s"),
    [(300.0, 0.0, 20.0), (5.0, 0.0, 5.0), (300.0, 20.0, 30.0), (300.0, 300.0, 60.0)],
    ids=["a third", "as usual", "half as much again as it should take", "never past the end"],
)
def test_a_process_that_says_nothing_costs_at_most_a_third_of_what_is_left(usual_s, expected_s, patience_s):
    until, _ = deadline()
    assert until.patience_s(usual_s, expected_s) == patience_s


def test_the_bar_is_the_time_of_the_budget_and_never_goes_back():
    shown = []

    class Watcher:
        def advance(self, done, total, text):
            shown.append((done, total, text))

    until, clock = deadline()
    for _ in range(3):
        until.show(Watcher(), "trying")
        clock.now_s += 40.0
    assert shown == [(0.0, 60.0, "trying"), (40.0, 60.0, "trying"), (60.0, 60.0, "trying")]


def test_a_budget_is_named_in_round_figures():
    assert [option_for(seconds) for seconds in (1, 40, 41, 119, 121)] == [
        "--budget 10s",
        "--budget 40s",
        "--budget 50s",
        "--budget 2m",
        "--budget 3m",
    ]
