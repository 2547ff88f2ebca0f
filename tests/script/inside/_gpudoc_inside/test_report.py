"""A fault of the hook is its own: it steps aside, takes back what it touched, and the script does not notice."""

from __future__ import annotations

import json
import sys

import pytest

from gpudoc.script.inside._gpudoc_inside.report import HookReport
from gpudoc.script.messages import HookOrder
from tests.full_disk import FILL, run_on_small_disk
from tests.script.watched import bare, save, watch, watch_text

# the hook's own code is broken from within, in each of the places where the script calls it
FAULTS = """
import _gpudoc_inside.{module} as broken
broken.{name} = lambda *more, **named: 1 / 0
"""
TRAIN = """
def before():
    kind = DataLoader(Rows(4), 2)
    return DataLoader.__init__.__module__, DataLoader.__iter__.__module__, type(iter(kind)).__next__.__module__

for x, y in DataLoader(Rows(), 8, shuffle=True):
    print(f"{step(x, y):.9f}")
print(*before())
sys.exit(5)
"""
PLACES = (("loaders", "find_place"), ("batches", "count"), ("steps", "peaks"), ("loaders", "is_iterable"))


@pytest.fixture
def report(tmp_path):
    (tmp_path / "order.json").write_text('{"purpose": "run"}')
    return HookReport(str(tmp_path))


def lines(folder):
    return [json.loads(line) for path in folder.glob("*.jsonl") for line in path.read_text().splitlines()]


@pytest.mark.parametrize(
    "place", [PLACES[1], *(pytest.param(place, marks=pytest.mark.slow) for place in (PLACES[0], *PLACES[2:]))],
    ids=lambda place: ".".join(place),
)  # fmt: skip
def test_a_faulty_hook_steps_aside_and_the_script_ends_as_ever(tmp_path, place):
    alone = bare([sys.executable, save(tmp_path, TRAIN, "alone.py")])
    fault = FAULTS.format(module=place[0], name=place[1])
    watched = watch(tmp_path, [sys.executable, save(tmp_path, fault + TRAIN)])
    assert (watched.code, watched.out, watched.err) == (5, alone.stdout, "")
    (aside,) = watched.seen[0].asides
    assert "ZeroDivisionError" in aside
    assert watched.seen[0].end is None


@pytest.mark.slow
def test_a_folder_that_goes_away_is_no_fault_of_the_script(tmp_path):
    gone = "import os, shutil; shutil.rmtree(os.environ['GPUDOC_SCRIPT_FOLDER'])\n"
    alone = bare([sys.executable, save(tmp_path, TRAIN, "alone.py")])
    watched = watch(tmp_path, [sys.executable, save(tmp_path, gone + TRAIN)])
    assert (watched.code, watched.out, watched.err, watched.seen) == (5, alone.stdout, "", ())


def test_stepping_aside_takes_everything_back_even_if_something_cannot_be(report, tmp_path):
    undone = []
    report.undo += [lambda: undone.append(1), lambda: 1 / 0, lambda: undone.append(2)]
    with report.guard("a step"):
        raise RuntimeError("mine")
    assert undone == [2, 1]
    assert report.off
    report.step_aside("again", KeyError())
    assert [line["kind"] for line in lines(tmp_path)] == ["start", "aside"]
    assert lines(tmp_path)[1]["why"] == "a step: RuntimeError: mine"


def test_a_child_tells_for_itself_once_it_has_something_to_tell(report, tmp_path):
    report.tell("measured")
    report.after_fork()
    assert not report.started
    report.tell("measured")
    assert [line["kind"] for line in lines(tmp_path)] == ["start", "measured"] * 2


def test_ranks_are_read_from_the_launchers_variables(report, tmp_path, monkeypatch):
    for name, value in (("RANK", "3"), ("LOCAL_RANK", "1"), ("WORLD_SIZE", "8"), ("SLURM_PROCID", "5")):
        monkeypatch.setenv(name, value)
    report.start()
    (start,) = lines(tmp_path)
    assert (start["rank"], start["local_rank"], start["world"]) == (3, 1, 8)
    assert next(tmp_path.glob("3-*.jsonl"))


FULL = f"""{FILL}
import os, sys
from gpudoc.script.hook import read
from gpudoc.script.inside._gpudoc_inside.report import HookReport
from pathlib import Path
folder = sys.argv[1]
open(folder + "/order.json", "w").write('{{"purpose": "run"}}')
report = HookReport(folder)
report.start()
fill(folder)
with report.guard("a test"):
    # the rest of the file's page has room for one line, and for half of the second
    for _ in range(2):
        report.tell("aside", why="w" * 3000)
for path in Path(folder).glob("filling-*"):
    path.unlink()
report.tell("measured")
print(report.off, read(Path(folder))[0].measured)
"""


def test_half_a_line_on_a_full_disk_is_taken_back(tmp_path):
    done = run_on_small_disk(tmp_path, [sys.executable, "-c", FULL, str(tmp_path)])
    assert (done.returncode, done.stdout, done.stderr) == (0, "True True\n", "")


MODULES = """
for x, y in DataLoader(Rows(), 8):
    step(x, y)
print(*sorted(name.partition(".")[2] for name in sys.modules if name.startswith("_gpudoc_inside.")))
"""
ALWAYS = "batches loaders report steps"


@pytest.mark.parametrize(
    ("order", "read"),
    [
        ({}, ALWAYS),
        ({"record": True}, "backward_calls batches loaders padding passes recorder report sampling steps"),
    ],
)
def test_only_a_launch_that_records_reads_the_files_for_it(tmp_path, order, read):
    watched = watch_text(tmp_path, MODULES, HookOrder(purpose="look", **order))
    assert watched.out.split() == read.split()
