import random

import pytest

from gpudoc.doctor.live.pace import step_pace
from gpudoc.doctor.live.shares import summarise
from gpudoc.facts.model import Absent
from tests.facts.live.made import stacks, track, watch


def pace(threads, close_up=None, processes=None):
    seen = watch(threads, processes, close_up=close_up if close_up is not None else Absent("not taken"))
    lead = summarise(seen).lead
    assert lead is not None
    return step_pace(seen, lead)


def by_lot(count):
    """Samples that say nothing of the order: what a short step looks like."""
    draw = random.Random(0)
    return {1: " ".join(draw.choice(("load", "backward")) for _ in range(count))}


def test_long_steps_are_counted_in_the_whole_watch():
    # eight samples of a twentieth of a second each
    assert pace({1: "load*4 backward*4 " * 50}).seconds == pytest.approx(0.4, rel=0.05)


def test_shorter_steps_are_counted_in_the_close_up():
    close = stacks({1: "load*4 backward*4 " * 50})
    found = pace(by_lot(400), close)
    assert found.seconds == pytest.approx(0.4, rel=0.05)
    assert found.at_most_s is None


def test_steps_too_short_for_the_close_up_are_bounded():
    found = pace(by_lot(400), stacks(by_lot(300)))
    assert found.at_most_s == pytest.approx(1 / 20)
    assert found.seconds < found.at_most_s


def test_without_a_close_up_or_without_steps_nothing_is_said():
    assert pace(by_lot(400)) is None
    assert pace({1: "load*200 backward*200"}) is None


def test_waiting_for_a_cpu_is_not_taken_for_a_long_step():
    draw = random.Random(0)
    # a thread that gets the CPU seldom is seen in one place several times
    stuck = " ".join(
        f"{draw.choice(('load', 'collate', 'backward', 'forward'))}*{draw.randint(2, 9)}" for _ in range(80)
    )
    close = stacks({1: stuck})
    quiet, crowded = ([track(main_cpu_s=c, cpu_s=c, main_queued_s=20.0 - c, queued_s=20.0 - c)] for c in (20.0, 5.0))
    assert pace(by_lot(400), close, quiet).at_most_s is None
    assert pace(by_lot(400), close, crowded).at_most_s == pytest.approx(4 / 20)
