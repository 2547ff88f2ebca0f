from __future__ import annotations

from gpudoc.doctor.registry import CATALOGUE
from gpudoc.knowledge.device_tests import cause_of_test
from gpudoc.knowledge.tables import read_table


def test_every_row_points_to_a_cause_that_exists():
    rows = [*read_table("device_tests.yaml", "messages"), *read_table("device_tests.yaml", "tests")]
    assert rows
    assert {str(row["cause"]) for row in rows} <= set(CATALOGUE)
    assert all(0 < float(str(row["sure"])) < 1 for row in rows)


def test_the_message_goes_before_the_name_and_nothing_is_guessed():
    assert cause_of_test("memory", "") == ("gpu_hardware_fault", 0.8)
    assert cause_of_test("memory", "Row remappings are pending") == ("gpu_ecc_error", 0.9)
    assert cause_of_test("persistence mode", "it is off") is None
