"""A file of tests ends by itself before its step's limit, and a test that had no time is not called a failure."""

import os
import subprocess
import sys
from functools import partial

from benchmarks.gpu_check.model import Ended
from benchmarks.gpu_check.runner import ROOT
from benchmarks.gpu_check.steps import by_junit

TESTS = """
import time

def test_wrong():
    assert 1 == 2, "one is not two"

def test_long():
    time.sleep(600)

def test_after_it():
    pass
"""


# what is left when each of the tests begins
LEFT = """
from benchmarks.gpu_check import deadline

deadline.SHORT_S, left = 0.5, iter([200.0, 0.6, 0.4])
deadline.Deadline.left_s = lambda self: next(left)
"""


def judged(folder):
    (folder / "test_some.py").write_text(TESTS)
    (folder / "conftest.py").write_text(LEFT)
    report = folder / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "benchmarks.gpu_check.deadline", f"--junitxml={report}"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "GPU_CHECK_SECONDS": "300"}
    subprocess.run([*command, "test_some.py"], cwd=folder, env=environment, check=False, capture_output=True)
    return by_junit(report, Ended(status=1, output="", errors=""))


def test_what_is_cut_by_the_end_of_the_step_is_left_out_and_so_is_what_follows(tmp_path):
    found = judged(tmp_path)
    assert found.failures == ["test_wrong: AssertionError: one is not two"]
    assert found.facts["tests left out for time"] == 2


def test_a_file_without_a_report_is_a_failure(tmp_path):
    judge = partial(by_junit, tmp_path / "none.xml")
    assert judge(Ended(status=2, output="", errors="ImportError: torch")).failures == [
        "pytest wrote no report: ImportError: torch"
    ]
