"""Which loops of a script are said to make many short passes, and which are left alone."""

import pytest

from gpudoc.fix.loops import find_short_passes
from gpudoc.fix.model import HotLine, RunEvidence

PAIRS = """
for x, y in loader:
    for i in range(30):
        for j in range(30):
            m[i, j] = x[i] * y[j]
    step(x, y)
"""
NAMED = """
for x, y in loader:
    values = [
        float(v)
        for v in x
    ]
    step(values, y)
"""
INSIDE = """
def outer(rows):
    for row in rows:
        def later():
            return slow(row)
        if row:
            match row:
                case 1:
                    keep(row)
                case _:
                    drop(row)
        else:
            try:
                skip(row)
            except ValueError:
                pass
"""
STEP_S = 0.1
SHARES = {
    "pairs": (PAIRS, {2: 1.0, 3: 0.01, 4: 0.05, 5: 0.7, 6: 0.2}, {3: 31, 4: 930, 5: 900, 6: 1}),
    "comprehension": (NAMED, {2: 1.0, 3: 0.1, 4: 0.5, 5: 0.1}, {3: 700, 4: 700, 5: 700}),
}


def found_in(folder, text, shares, passes, step_s=STEP_S):
    file = folder / "train.py"
    file.write_text(text)
    evidence = RunEvidence(
        hot=tuple(HotLine(file, line, share) for line, share in shares.items()),
        passes=tuple((file, line, float(count)) for line, count in passes.items()),
    )
    return find_short_passes(evidence, step_s, (file,))


def test_the_innermost_loop_is_named_with_its_passes_and_the_length_of_one(tmp_path):
    (loop,) = found_in(tmp_path, *SHARES["pairs"])
    assert (loop.line, loop.last_line, loop.passes) == (4, 5, 900)
    assert loop.share == pytest.approx(0.7)
    assert loop.pass_s == pytest.approx(0.7 * STEP_S / 900)


def test_a_comprehension_is_a_loop_over_all_its_lines(tmp_path):
    (loop,) = found_in(tmp_path, *SHARES["comprehension"])
    assert (loop.line, loop.last_line, loop.passes) == (3, 6, 700)
    assert loop.share == pytest.approx(0.7)


@pytest.mark.parametrize(
    ("shares", "passes", "step_s"),
    [
        ({2: 1.0, 5: 0.15, 6: 0.8}, {5: 900}, STEP_S),
        ({2: 1.0, 5: 0.7, 6: 0.2}, {5: 49}, STEP_S),
        ({2: 1.0, 5: 0.7, 6: 0.2}, {5: 900}, 1.0),
        ({2: 1.0, 5: 0.7, 6: 0.2}, {}, STEP_S),
    ],
    ids=["little of a step", "few passes", "long passes", "not counted"],
)
def test_what_no_loop_makes_slow_is_not_said_of_one(tmp_path, shares, passes, step_s):
    assert found_in(tmp_path, PAIRS, shares, passes, step_s) == ()


def test_the_lines_of_a_function_that_a_loop_defines_are_not_the_loop_s(tmp_path):
    """Lines 4 and 5 define and hold another function; what it costs stands at the line that calls it, too."""
    lines = {5: 0.9, 6: 0.01, 7: 0.01, 9: 0.1, 11: 0.1, 14: 0.1, 16: 0.1}
    (loop,) = found_in(tmp_path, INSIDE, lines, {4: 500, 6: 500})
    assert loop.share == pytest.approx(0.42)


@pytest.mark.parametrize("text", ["for x in :\n", None])
def test_a_file_that_cannot_be_read_names_no_loop(tmp_path, text):
    file = tmp_path / "train.py"
    if text is not None:
        file.write_text(text)
    evidence = RunEvidence(hot=(HotLine(file, 1, 1.0),), passes=((file, 1, 500.0),))
    assert find_short_passes(evidence, STEP_S, (file,)) == ()
