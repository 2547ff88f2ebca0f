from __future__ import annotations

import pytest

from gpudoc.knowledge.drivers import cuda_of_driver, driver_floor, driver_runs_cuda, parse_version


@pytest.mark.parametrize(
    ("driver", "cuda"),
    [
        ("550.54.14", (12, 4)),
        ("550.127.05", (12, 4)),
        ("535.54.02", (12, 1)),
        ("470.42.01", (11, 4)),
        ("580.65.06", (13, 0)),
        ("565.77", (12, 7)),
    ],
)
def test_a_driver_carries_the_newest_toolkit_not_newer_than_itself(driver, cuda):
    assert cuda_of_driver(driver) == cuda


def test_windows_has_its_own_numbers():
    assert cuda_of_driver("551.61", windows=True) == (12, 4)
    assert cuda_of_driver("551.60", windows=True) == (12, 3)


def test_a_driver_older_than_the_table_has_no_answer():
    assert cuda_of_driver("390.48") is None


def test_the_floor_is_that_of_the_major_version():
    assert driver_floor((12, 8)) == "525"
    assert driver_floor((11, 8)) == "450.80.02"
    assert driver_floor((10, 2)) == "440.33"
    assert driver_floor((9, 0)) is None


@pytest.mark.parametrize(
    ("driver", "built", "runs"),
    [((12, 2), (12, 8), True), ((12, 9), (13, 0), False), ((13, 0), (11, 8), True), ((10, 1), (10, 2), False)],
)
def test_minor_versions_are_compatible_from_11_on(driver, built, runs):
    assert driver_runs_cuda(driver, built) is runs


def test_a_version_must_begin_with_a_number():
    assert parse_version("550.54.14 ") == (550, 54, 14)
    with pytest.raises(ValueError, match="not a version"):
        parse_version("unknown")
