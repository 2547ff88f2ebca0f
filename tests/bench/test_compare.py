from dataclasses import replace

import pytest

from gpudoc.bench.compare import HARD_KEYS, SOFT_KEYS, compare, judge
from gpudoc.bench.model import Doubt, Record
from gpudoc.bench.settle import settle
from gpudoc.errors import GpudocError
from tests.bench.builders import reading, row

ENVIRONMENT = {"bench_version": 1, "device": "cpu", "cpu": "EPYC", "threads": 2, "memory_gib": 24, "torch": "2.13.0"}


def spread(middle, width, better="higher", name="x"):
    samples = tuple(middle + width * (index - 10) / 10 for index in range(21))
    return settle([reading(name, "cpu", samples, better=better)])[0]


def record(*rows, **environment):
    return Record(environment={**ENVIRONMENT, **environment}, measurements=rows)


@pytest.mark.parametrize(
    ("old", "new", "better", "expected"),
    [
        (spread(100, 5), spread(97, 5), "higher", "same"),
        (spread(100, 1), spread(97, 1), "higher", "slower"),
        (spread(100, 1), spread(103, 1), "higher", "faster"),
        (spread(100, 30), spread(70, 30), "higher", "same"),
        (spread(100, 1, "lower"), spread(103, 1, "lower"), "lower", "slower"),
        (spread(100, 1, "lower"), spread(97, 1, "lower"), "lower", "faster"),
    ],
)
def test_the_intervals_decide_and_not_a_percentage(old, new, better, expected):
    assert judge(old, new).judgement == expected


def test_slower_while_something_else_ran_is_doubtful_and_no_regression():
    busy = replace(spread(80, 1), doubts=(Doubt("busy_host", "1.4 CPUs busy"),))
    change = judge(spread(100, 1), busy)
    assert (change.judgement, change.because) == ("doubtful", "1.4 CPUs busy")
    assert compare(record(spread(100, 1)), record(busy)).regressions == ()
    wide = replace(spread(80, 1), doubts=(Doubt("spread", "spread 20%"),))
    assert judge(spread(100, 1), wide).judgement == "slower"
    assert judge(busy, spread(100, 1)).judgement == "faster"


def test_too_few_samples_have_no_interval_to_judge_by():
    few = settle([reading("x", "cpu", (50.0, 50.0))])[0]
    assert judge(spread(100, 1), few).because == "too few samples"
    assert judge(few, spread(100, 1)).judgement == "not compared"


def test_a_refused_row_is_not_compared():
    assert judge(replace(row(), value=None), row()).judgement == "not compared"
    assert judge(row(), row(unit="µs")).judgement == "not compared"


def test_only_equal_rows_meet_and_the_rest_is_counted():
    found = compare(
        record(spread(1, 0.1, name="a"), spread(1, 0.1, name="b")), record(spread(2, 0.1, name="b"), row("c"))
    )
    assert [change.row.name for change in found.changes] == ["b"]
    assert found.only_old == ("a cpu",)
    assert found.only_new == ("c cuda:0",)
    assert found.regressions == ()
    assert found.changes[0].ratio == pytest.approx(2.0)


@pytest.mark.parametrize("key", HARD_KEYS)
def test_unlike_machines_are_refused_by_the_key_that_differs(key):
    with pytest.raises(GpudocError, match=f"different machines: {key} was .*, is other"):
        compare(record(), record(**{key: "other"}))


def test_other_software_is_said_and_compared():
    found = compare(record(spread(100, 1)), record(spread(90, 1), torch="2.14.0"))
    assert found.different == ("torch was 2.13.0, is 2.14.0",)
    assert len(found.regressions) == 1
    assert not set(HARD_KEYS) & set(SOFT_KEYS)
