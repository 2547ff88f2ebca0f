"""Decisions by device are found in the source, and each process of a run tells the ways that it took."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.standin import branches

SOURCE = """
def kind(device, x=0):
    if device.type == "cuda":
        x = 1
    while x and device.type == "cuda":
        x -= 1
    if x > 3:
        x = 2
    others = [y for y in (1, 2) if y > 1 or device.type == "cpu"]
    return "gpu" if device.type == "cuda" else "host", len(others)
"""


def test_every_kind_of_decision_is_found_and_no_other():
    assert [(line, condition) for line, _, condition in branches.decisions(SOURCE)] == [
        (3, "device.type == 'cuda'"),
        (5, "x and device.type == 'cuda'"),
        (9, "y > 1 or device.type == 'cpu'"),
        (10, "device.type == 'cuda'"),
    ]


def test_what_is_told_changes_nothing_of_what_is_done(tmp_path, monkeypatch):
    monkeypatch.setattr(branches, "ROOT", tmp_path)
    monkeypatch.setattr(branches.sys, "meta_path", [])
    branches.watch(str(tmp_path / "taken"))
    file = tmp_path / "gpudoc" / "a.py"
    file.parent.mkdir()
    file.write_text(SOURCE)
    made: dict = {}
    exec(compile(branches.instrument(SOURCE, branches.name_of(file, SOURCE)), "a.py", "exec"), made)
    device = type("Device", (), {"type": "cuda"})
    assert made["kind"](device) == ("gpu", 1)

    def said():
        return list(branches.report(set((tmp_path / "taken").read_text().splitlines()), tmp_path / "gpudoc"))

    first = said()
    assert first[0].startswith("6 of 8 ways taken")
    assert first[1:] == [
        "gpudoc/a.py:3: never False: device.type == 'cuda'",
        "gpudoc/a.py:10: never False: device.type == 'cuda'",
    ]
    device.type = "cpu"
    made["kind"](device)
    assert said()[0].startswith("8 of 8")
    file.write_text(SOURCE + "\n")
    assert said()[0].startswith("0 of 8"), "the lines of a file that changed are not those that were run"


def test_a_process_that_is_watched_tells_the_ways_of_gpudoc(tmp_path):
    """As the .pth file has it: before anything of gpudoc is imported, and in what is forked later."""
    code = f"""
import os
exec({branches.PATH!r})
from gpudoc.process.allocator import missing_environment
missing_environment("exact", "cuda")
if os.fork() == 0:
    missing_environment("exact", "cpu")
    os._exit(0)
os.wait()
"""
    taken = tmp_path / "taken"
    told = {"STANDIN_WATCH": branches.__file__, "STANDIN_BRANCHES": str(taken), "PYTHONPATH": str(branches.ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, **told}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    ways = sorted(
        line.split(" ")[1] for line in taken.read_text().splitlines() if "gpudoc/process/allocator.py" in line
    )
    assert ways == ["False", "True"], taken.read_text()
