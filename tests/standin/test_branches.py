"""Branches that depend on the device are found in the source, and the ways taken are told from a run's arcs."""

from __future__ import annotations

from tests.standin.branches import decisions

SOURCE = """
def f(device, x):
    if device.type == "cuda":
        x = 1
    if x > 3:
        x = 2
    while (
        x
        and torch.cuda.is_available()
    ):
        x = 0
    return 1 if device.type == "cpu" else 2
"""


def test_the_ways_taken_are_told_for_each_decision_by_device(tmp_path):
    file = tmp_path / "f.py"
    file.write_text(SOURCE)
    (first, second), unseen = decisions(file)
    assert (first.first, first.body, unseen) == (3, 4, 1)
    assert first.ways({(2, 3), (3, 5)}) == {"entered": False, "passed by": True}
    assert first.ways({(3, 4), (4, 5)}) == {"entered": True, "passed by": False}
    assert (second.first, second.last, second.body) == (7, 9, 11)
    assert second.ways({(8, 9), (9, 11), (11, 8), (8, 12)}) == {"entered": True, "passed by": True}
    assert second.ways(set()) == {"entered": False, "passed by": False}
