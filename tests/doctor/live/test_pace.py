import random

import pytest

from gpudoc.doctor.live.pace import step_pace
from gpudoc.doctor.live.shares import summarise
from gpudoc.facts.model import Absent
from tests.facts.live.made import stacks, watch


def pace(threads, close_up=None):
    seen = watch(threads, close_up=close_up if close_up is not None else Absent("not taken"))
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
    assert not found.at_most


def test_steps_too_short_for_the_close_up_are_bounded():
    found = pace(by_lot(400), stacks(by_lot(300)))
    assert found.at_most
    assert found.seconds == pytest.approx(1 / 20)


def test_without_a_close_up_or_without_steps_nothing_is_said():
    assert pace(by_lot(400)) is None
    assert pace({1: "load*200 backward*200"}) is None
