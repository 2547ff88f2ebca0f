"""campaigns/plan_standin.py: how it closes in on the truth, what it makes of a row, and one cell for real."""

from __future__ import annotations

import json
import sys

import pytest

from tests.standin.gpus import ROOT

SCRIPT = ROOT / "campaigns" / "plan_standin.py"
pytestmark = pytest.mark.standin


def asked(standin, code):
    """What Python code prints that has the script imported as `plan`."""
    done = standin().python(
        f"import sys; sys.path.insert(0, {str(SCRIPT.parent)!r}); import plan_standin as plan\n{code}"
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_few_questions_bracket_the_truth_from_either_side_of_it(standin):
    code = """
import json
found = []
for truth in (0, 1, 30, 99, 100, 103, 140):
    questions = []
    low, high = plan.bracket(lambda batch: questions.append(batch) or batch <= truth, 100, 2, 5)
    found.append([truth, low, high, len(questions)])
print(json.dumps(found))
"""
    rows = asked(standin, code)
    for truth, low, high, questions in rows:
        assert questions <= 5
        assert low <= truth
        assert high is None or high > truth
    assert [row[1:3] for row in rows if row[0] == 99] == [[99, 100]]


def test_a_point_inside_of_the_bracket_is_no_error_and_an_interval_holds_when_it_meets_it(standin):
    code = """
import json
row = {"ends": {"98": "fits", "106": "oom_device"}}
points = [plan.error_of({**row, "predicted": n}) for n in (98, 105, 106, 49)]
print(json.dumps([points, [plan.holds({**row, "interval": i}) for i in ([90, 97], [90, 98], [105, 110], [106, 110])]]))
"""
    points, held = asked(standin, code)
    assert points == [0, 0, pytest.approx(1 / 105), -0.5]
    assert held == [False, True, True, False]


def test_behind_a_hole_there_is_a_second_bracket_and_an_interval_must_meet_both(standin):
    code = """
import json
row = {"ends": {"98": "fits", "99": "oom_device", "100": "allocator_retry", "102": "oom_device"}, "predicted": 100}
held = [plan.holds({**row, "interval": i}) for i in ([97, 101], [99, 101], [97, 99])]
print(json.dumps([plan.edges(row), plan.error_of(row), held]))
"""
    edges, error, held = asked(standin, code)
    assert edges == [[98, 99], [100, 102]]
    assert error == 0
    assert held == [True, False, False]


def test_a_cell_is_measured_by_the_tuners_own_trials_and_not_again(standin, tmp_path):
    rows = tmp_path / "rows.jsonl"
    command = [str(SCRIPT), "--only", "gpt-384:4GiB:bf16", "--results", str(rows), "--resume"]
    gpus = standin()
    first = gpus.run(sys.executable, *command)
    (row,) = map(json.loads, rows.read_text().splitlines())
    assert set(row["ends"].values()) == {"fits", "oom_device"}, first.stderr
    # what is predicted fits, and the next batch does not
    assert row["ends"][str(row["predicted"])] == "fits"
    assert row["ends"][str(row["predicted"] + 1)] == "oom_device"
    gpus.run(sys.executable, *command)
    assert len(rows.read_text().splitlines()) == 1
