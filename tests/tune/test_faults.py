"""A sample of campaigns/tune_faults.py, which plants thirteen faults; test_launch.py meets most of the others."""

import importlib.util
from pathlib import Path

import pytest

from tests.namespaces import unshared

PATH = Path(__file__).resolve().parents[2] / "campaigns" / "tune_faults.py"


@pytest.fixture(scope="module")
def faults():
    spec = importlib.util.spec_from_file_location("tune_faults", PATH)
    module = importlib.util.module_from_spec(spec)
    # a dataclass looks its module up by name
    import sys

    sys.modules["tune_faults"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["tune_faults"]


@pytest.mark.parametrize(
    "name",
    [pytest.param("full disk for the journal", marks=pytest.mark.slow), "OOM only in the last partial batch"],
)
def test_the_fault_is_told_apart_and_nothing_is_left(faults, monkeypatch, name):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    if name == faults.FULL_DISK:
        unshared("-rm")
    row = faults.run_fault(name)
    assert row.is_right, row


def test_there_are_thirteen_and_a_wrong_end_or_anything_left_is_not_right(faults):
    assert len(faults.FAULTS) == 13
    assert not faults.Row("a", "hang", "signal", "", 1.0).is_right
    assert faults.Row("a", "hang", "hang", "", 1.0).is_right
    for left in ({"orphans": 1}, {"shm_files": 1}, {"folders": 1}):
        assert not faults.Row("a", "hang", "hang", "", 1.0, **left).is_right
