"""A kept command: its output and end are known, and whatever happens to gpudoc, nothing of it is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap

import psutil
import pytest

from gpudoc.errors import GpudocError
from gpudoc.script.cell import Cell, what_can_be
from gpudoc.script.launch import start
from tests.script.family import alive, marked
from tests.waiting import wait_until

# a child, one in a separate session, and one whose parent has ended
FAMILY = "sleep 600 & setsid sleep 601 & (setsid sleep 602 &) ; echo started; "
CELLS = [False, pytest.param(True, marks=pytest.mark.skipif(not what_can_be().files, reason="no cell here"))]


def start_here(tmp_path, *command, in_a_cell=False, environment=os.environ, **more):
    cell = Cell(scratch=tmp_path) if in_a_cell else None
    return start(command, environment=environment, output=tmp_path / "output", cell=cell, **more)


def finish(running):
    with running:
        while (code := running.poll(1.0)) is None:
            pass
        return code, running.tail()


def test_output_comes_in_order_and_the_code_is_the_commands(tmp_path):
    assert finish(start_here(tmp_path, "sh", "-c", "echo out; echo err >&2; cat; exit 3")) == (3, "out\nerr\n")


def test_a_signal_that_ended_it_is_a_negative_code(tmp_path):
    assert finish(start_here(tmp_path, "sh", "-c", "kill -SEGV $$"))[0] == -signal.SIGSEGV


def test_a_command_that_ended_while_nobody_asked_has_its_code(tmp_path):
    with start_here(tmp_path, "sh", "-c", "sleep 0.5; exit 3") as running:
        # the keeper is a child of this process: it stays until it is waited for
        wait_until(lambda: psutil.Process(running.pid).status() == psutil.STATUS_ZOMBIE)
        assert running.poll(1.0) == 3


@pytest.mark.parametrize("in_a_cell", CELLS)
def test_a_command_that_cannot_be_started_is_the_users_mistake(tmp_path, in_a_cell):
    with pytest.raises(GpudocError, match="no-such-program: No such file") as caught:
        start_here(tmp_path, "no-such-program", in_a_cell=in_a_cell)
    assert caught.value.exit_code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["output"]


def test_only_the_end_of_a_long_output_is_read(tmp_path):
    with start_here(tmp_path, "seq", "100000") as running:
        while running.poll(1.0) is None:
            pass
        assert running.tail(12) == "9999\n100000\n"


@pytest.mark.parametrize("in_a_cell", CELLS)
def test_who_outlives_the_command_is_ended(tmp_path, in_a_cell):
    environment = marked()
    code, said = finish(start_here(tmp_path, "sh", "-c", FAMILY, in_a_cell=in_a_cell, environment=environment))
    assert (code, said) == (0, "started\n")
    assert alive(environment) == []


@pytest.mark.parametrize("in_a_cell", CELLS)
def test_the_end_of_a_trial_is_the_end_of_its_whole_family(tmp_path, in_a_cell):
    environment = marked()
    running = start_here(tmp_path, "sh", "-c", FAMILY + "wait", in_a_cell=in_a_cell, environment=environment)
    with running:
        wait_until(lambda: running.tail())
        assert len(alive(environment)) >= 4
        assert running.poll() is None
        running.end()
        assert alive(environment) == []


WATCHER = """
import os, pathlib, sys
from gpudoc.script.cell import Cell
from gpudoc.script.launch import start
folder = pathlib.Path(sys.argv[1])
cell = Cell(scratch=folder) if sys.argv[2] == "True" else None
running = start(["sh", "-c", sys.argv[3]], environment=os.environ, output=folder / "output", cell=cell)
running.poll(600)
"""


@pytest.mark.parametrize("in_a_cell", CELLS)
def test_gpudoc_killed_leaves_nothing_running(tmp_path, in_a_cell):
    environment = marked()
    code = textwrap.dedent(WATCHER)
    watcher = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path), str(in_a_cell), FAMILY + "wait"], env=environment
    )
    wait_until(lambda: (tmp_path / "output").exists() and (tmp_path / "output").read_text() == "started\n")
    assert len(alive(environment)) >= 6
    watcher.kill()
    watcher.wait()
    wait_until(lambda: alive(environment) == [])


@pytest.mark.parametrize("in_a_cell", CELLS)
def test_a_keeper_that_is_killed_takes_the_command_along_and_is_a_fault(tmp_path, in_a_cell):
    with start_here(tmp_path, "sh", "-c", "echo $PPID; exec sleep 600", in_a_cell=in_a_cell) as running:
        os.kill(running.pid, signal.SIGKILL)
        with pytest.raises(GpudocError) as caught:
            running.poll(120.0)
        assert caught.value.exit_code == 70


@pytest.mark.parametrize("in_a_cell", CELLS)
def test_the_memory_limit_holds_for_every_process_and_can_be_lifted_by_a_worker(tmp_path, in_a_cell):
    code = "import resource as r; print(*r.getrlimit(r.RLIMIT_DATA), flush=True); bytes(1 << 30)"
    ended, said = finish(
        start_here(
            tmp_path, "sh", "-c", f"{sys.executable} -c '{code}'", in_a_cell=in_a_cell, memory_limit_bytes=200 << 20
        )
    )
    assert ended == 1
    assert said.startswith(f"{200 << 20} -1\n")
    assert "MemoryError" in said


def test_a_signal_that_was_ignored_for_gpudoc_is_ignored_by_the_command(tmp_path):
    # as nohup does with a hangup; Python's own way with a broken pipe is not handed on
    code = 'trap \'\' HUP; exec "$0" -c "$1" "$2" False \'cat /proc/self/status\''
    subprocess.run(["sh", "-c", code, sys.executable, WATCHER, str(tmp_path)], check=True)
    status = dict(line.split(":\t") for line in (tmp_path / "output").read_text().splitlines() if ":\t" in line)
    ignored = int(status["SigIgn"], 16)
    assert ignored & 1 << signal.SIGHUP - 1
    assert not ignored & 1 << signal.SIGPIPE - 1
    assert int(status["SigBlk"], 16) == 0
