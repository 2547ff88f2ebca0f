from dataclasses import replace

import pytest

from gpudoc.bench.model import Record
from gpudoc.bench.report import BenchReport
from gpudoc.bench.verdicts import corrupted
from gpudoc.errors import ExitCode
from tests.bench.builders import row

GOOD = Record(environment={"device": "cpu"}, measurements=(row(value=100.0),))


def test_low_is_zero_and_corrupted_nothing_or_a_regression_is_one():
    assert BenchReport.of(GOOD, None).exit_code == ExitCode.OK
    low = replace(corrupted(row()), severity="warning")
    assert BenchReport.of(replace(GOOD, findings=(low,)), None).exit_code == ExitCode.OK
    assert BenchReport.of(replace(GOOD, findings=(corrupted(row()),)), None).exit_code == ExitCode.BAD_ANSWER
    assert BenchReport.of(replace(GOOD, measurements=()), None).exit_code == ExitCode.BAD_ANSWER


@pytest.mark.parametrize(("value", "expected"), [(100.0, 0), (90.0, 1), (110.0, 0)])
def test_a_regression_is_one(value, expected):
    assert BenchReport.of(replace(GOOD, measurements=(row(value=value),)), GOOD).exit_code == expected


def test_interrupted_is_130_whatever_was_found():
    assert BenchReport.of(replace(GOOD, interrupted=True), None).exit_code == ExitCode.INTERRUPTED
