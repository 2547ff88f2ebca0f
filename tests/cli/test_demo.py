"""`gpudoc demo`: each failure with its text, the command that asks, and what doctor really answers."""

import os
import pty
import re
import subprocess
import sys
import venv

import psutil
import pytest

from gpudoc.cli.app import run
from gpudoc.knowledge.failures import FAILURES

from .test_app import gpudoc_command

CAUSES = {
    "wheel": "gpu_newer_than_wheel_archs",
    "memory": "oom_fragmentation",
    "gpu": "gpu_fallen_off_bus",
    "rank": "oom_capacity",
    "nan": "fp16_overflow_nan",
}


@pytest.fixture
def without_torch(tmp_path):
    """An active environment whose Python has no torch."""
    venv.create(tmp_path / "env", with_pip=False, symlinks=True)
    return {"VIRTUAL_ENV": str(tmp_path / "env")}


def test_every_failure_is_tried():
    assert {failure.name for failure in FAILURES if not failure.is_job} == set(CAUSES)
    assert [failure.name for failure in FAILURES if failure.is_job] == ["loader"]


@pytest.mark.parametrize("name", CAUSES)
def test_a_screen_is_the_text_the_command_and_the_answer(name, capsys):
    assert run(["demo", name]) == 0
    question, answer = capsys.readouterr().out.split(f"  $ gpudoc demo {name} --text | gpudoc doctor -\n")
    assert f"[{CAUSES[name]}, " in answer
    for line in next(one for one in FAILURES if one.name == name).text.splitlines():
        assert line in question


def test_the_command_that_is_shown_gives_the_answer_that_is_shown(capsys):
    run(["demo", "nan"])
    answer = capsys.readouterr().out.split("gpudoc doctor -\n")[1]
    pasted = gpudoc_command("demo", "nan", "--text").stdout
    asked = [sys.executable, "-m", "gpudoc", "doctor", "-"]
    assert subprocess.run(asked, input=pasted, capture_output=True, text=True, check=False).stdout + "\n" == answer


def test_the_list_names_them_and_asks_nothing_without_a_terminal():
    listed = gpudoc_command("demo", "--plain")
    assert (listed.returncode, listed.stderr) == (0, "")
    assert all(failure.name in listed.stdout for failure in FAILURES)


def test_another_name_is_wrong_usage():
    wrong = gpudoc_command("demo", "whell")
    assert wrong.returncode == 2
    assert "gpudoc demo NAME, with one of: wheel, memory, loader, gpu, rank, nan" in wrong.stderr


def test_on_a_terminal_one_is_chosen_by_its_number_until_enter():
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "gpudoc", "demo"]
    process = subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    os.close(theirs)
    os.write(ours, b"4\n\n")
    screen, questions = process.communicate()
    os.close(ours)
    assert process.returncode == 0
    assert "[gpu_fallen_off_bus, " in screen
    assert questions.count("Which one?") == 2


def test_without_torch_the_job_says_so_and_the_tour_goes_on(without_torch):
    alone = gpudoc_command("demo", "loader", **without_torch)
    assert alone.returncode == 2
    assert "needs torch" in alone.stderr
    assert "pip install torch" in alone.stderr
    tour = gpudoc_command("demo", "--all", **without_torch)
    assert tour.returncode == 0, tour.stderr
    assert "not shown: this demo runs a real job and needs torch" in tour.stdout
    assert tour.stdout.index("not shown") < tour.stdout.index("[fp16_overflow_nan, ")


@pytest.mark.slow
def test_the_job_really_runs_and_nothing_of_it_is_left(tmp_path):
    shown = gpudoc_command("demo", "loader", TMPDIR=str(tmp_path))
    assert shown.returncode == 0, shown.stderr
    # which of its lines takes most depends on how busy this machine is, and a verdict too
    assert re.search(r" train\.py:1[45] ", shown.stdout)
    assert list(tmp_path.glob("gpudoc-*")) == []
    assert not [p for p in psutil.process_iter(["cmdline"]) if str(tmp_path) in " ".join(p.info["cmdline"] or ())]
