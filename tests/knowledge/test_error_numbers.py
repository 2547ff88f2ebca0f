from __future__ import annotations

import pytest

from gpudoc.doctor.registry import CATALOGUE
from gpudoc.knowledge.error_numbers import cause_of_error
from gpudoc.knowledge.tables import read_table


@pytest.mark.parametrize("library", ["cuda", "nvml"])
def test_every_number_stands_once_and_points_to_a_cause_that_exists(library):
    rows = read_table("error_numbers.yaml", library)
    assert len({row["number"] for row in rows}) == len(rows)
    for row in rows:
        assert row["cause"] in CATALOGUE
        assert {"asked", "printed"} & row.keys()
        assert all(0 < row[how] < 1 for how in ("asked", "printed") if how in row)


def test_a_number_may_mean_something_only_where_the_driver_was_asked_or_where_it_was_printed():
    assert cause_of_error("nvml", 18, "asked") == ("driver_library_mismatch", 0.98)
    assert cause_of_error("nvml", 18, "printed") == ("driver_library_mismatch", 0.93)
    assert cause_of_error("nvml", 11, "printed") is None
    assert cause_of_error("cuda", 35, "asked") is None
    assert cause_of_error("cuda", 9999, "printed") is None


def test_what_one_gpu_answers_is_its_own_fault_or_nobodys():
    assert cause_of_error("nvml", 15, "asked", of_gpu=True) == ("gpu_fallen_off_bus", 0.95)
    assert cause_of_error("nvml", 18, "asked", of_gpu=True) is None
