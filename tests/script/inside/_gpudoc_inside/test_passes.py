"""How often the lines of a step run, counted in a script that trains."""

import pytest

from gpudoc.script.messages import HookOrder
from tests.script.watched import watch_text

ORDER = HookOrder(purpose="look", lines=True)
TRAIN = """
def pairs(x):
    total = 0.0
    for i in range(400):
        for j in range(50):
            total += float(i * j)
    return total + sum([float(i) for i in range(9000)])

def late():
    print("traced", sys.gettrace() is not None, sys._getframe(1).f_trace is not None)

kept = []
for number, (x, y) in enumerate(DataLoader(Rows(1600), 8)):
    step(x, y)
    for row in range(60):
        kept.append(row)
    pairs(x)
    if number == 199:
        late()
"""


def passes_of(folder, text):
    watched = watch_text(folder, text, ORDER)
    assert watched.code == 0, watched.err
    code = (folder / "train.py").read_text().splitlines()
    found = watched.seen[0].lines
    return watched, {code[line - 1].strip(): count for _, line, count in found.passes}


def test_each_line_of_a_busy_function_is_counted_for_one_step_and_then_nothing_is_traced(tmp_path):
    watched, passes = passes_of(tmp_path, TRAIN)
    assert passes["total += float(i * j)"] == 20_000
    assert passes["return total + sum([float(i) for i in range(9000)])"] == pytest.approx(9000, abs=5)
    # the loop that runs already when counting begins
    assert passes["step(x, y)"] == 1
    assert "traced False False" in watched.out


def test_the_innermost_line_has_the_time_that_its_callers_share(tmp_path):
    watched, _ = passes_of(tmp_path, TRAIN)
    code = (tmp_path / "train.py").read_text().splitlines()
    seen = watched.seen[0].lines
    called, own = ({code[line - 1].strip(): count for _, line, count in lines} for lines in (seen.hot, seen.own))
    assert called["pairs(x)"] > 0.3 * seen.looks > own.get("pairs(x)", 0)
    assert sum(own.values()) <= seen.looks


def test_a_debugger_of_the_script_keeps_its_trace(tmp_path):
    text = "def follow(*_): return None\nsys.settrace(follow)\n" + TRAIN.replace(
        "sys.gettrace() is not None", "sys.gettrace() is follow"
    )
    watched, passes = passes_of(tmp_path, text)
    assert "traced True" in watched.out
    assert passes == {}


def test_a_step_of_too_many_passes_is_cut_off_and_counted_as_far_as_it_came(tmp_path):
    text = TRAIN.replace("range(400)", "range(60_000)").replace("Rows(1600)", "Rows(160)").replace("== 199", "== 19")
    watched, passes = passes_of(tmp_path, text)
    assert 1_000_000 < passes["total += float(i * j)"] < 3_000_000
    assert "traced False" in watched.out
