"""A slow rank is named from rows of own parts; ranks that are alike, or differ by chance, are not."""

from __future__ import annotations

import pytest

from gpudoc.train.ranks.pace import Own, RankPace


def pace(world=4, facts=None):
    asked = []

    def ask(rank):
        asked.append(rank)
        return facts or {}

    return RankPace(world, ask), asked


def row(*seconds, read=None):
    return [Own(own, (read or [0.0] * len(seconds))[rank]) for rank, own in enumerate(seconds)]


def test_a_rank_slower_in_three_rows_is_named_with_its_factor_and_asked_once():
    judged, asked = pace(facts={"host": "n3", "sm_clock_mhz": 1200, "throttled": "hw_slowdown"})
    rows = [judged.take(10, row(1.0, 1.1, 1.5, 0.9)) for _ in range(5)]
    assert rows[:2] == [None, None]
    slow = rows[4]
    assert (slow.rank, slow.where) == (2, "computing")
    assert slow.factor == pytest.approx(1.5)
    assert slow.step_s == pytest.approx(0.15)
    assert asked == [2]
    assert "rank 2 is 1.5 times as slow as the others in computing" in slow.say()
    assert "host n3, sm clock mhz 1200, throttled hw_slowdown" in slow.say()
    assert slow.document()["sm_clock_mhz"] == 1200


def test_slow_reading_is_told_from_slow_computing():
    judged, _ = pace(2)
    for _ in range(3):
        slow = judged.take(10, row(1.0, 2.0, read=[0.1, 1.0]))
    assert (slow.rank, slow.where) == (1, "reading samples")


@pytest.mark.parametrize(
    "rows",
    [
        [(1.0, 1.1, 1.2, 0.9)] * 6,
        # each row has another one that is slow
        [(1.0, 2.0, 1.0, 1.0), (1.0, 1.0, 2.0, 1.0), (2.0, 1.0, 1.0, 1.0)] * 2,
        # one row in three
        [(1.0, 1.0, 2.0, 1.0), (1.0, 1.0, 1.0, 1.0), (1.0, 1.0, 1.0, 1.0)] * 2,
        # below a millisecond a step
        [(0.001, 0.001, 0.009, 0.001)] * 6,
    ],
)
def test_ranks_that_are_alike_are_not_named(rows):
    judged, asked = pace()
    assert [judged.take(10, row(*seconds)) for seconds in rows] == [None] * 6
    assert asked == []


def test_rows_of_single_steps_are_judged_together():
    judged, _ = pace(2)
    told = [judged.take(1, row(0.1, 0.2)) for _ in range(12)]
    assert [slow is not None for slow in told] == [False] * 9 + [True] * 3


def test_a_rank_that_is_well_again_is_not_named_any_more():
    judged, _ = pace(2)
    for _ in range(4):
        judged.take(10, row(1.0, 2.0))
    assert judged.slow is not None
    assert judged.take(10, row(1.0, 1.0)) is None


def test_the_run_adds_up_each_ranks_own_part():
    judged, _ = pace(2)
    judged.take(10, row(1.0, 2.0, read=[0.5, 0.0]))
    judged.take(30, row(3.0, 2.0))
    assert judged.document() == {"step_s": [0.1, 0.1], "read_s": [0.0125, 0.0], "slow": None}


def test_one_rank_has_nothing_to_compare():
    judged, _ = pace(1)
    assert judged.take(10, ()) is None
    assert judged.document() is None
