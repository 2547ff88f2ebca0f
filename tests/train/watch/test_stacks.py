"""Stacks of real processes: asleep, with a child, stopped, and this one seen from another thread."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from gpudoc.facts.live import spy
from gpudoc.facts.model import Absent
from gpudoc.train.ranks.pulse import READING, Beat
from gpudoc.train.watch import stacks
from gpudoc.train.watch.stacks import stand_here, stands_of

# the rank itself stands in nobody's file, as in a library's, and its loader worker in the user's
RANK = """
import os, sys
sys.path.insert(0, sys.argv[1])
from mine import waits_in_vain
def waits_for_its_worker():
    os.wait()
if os.fork() == 0:
    waits_in_vain()
waits_for_its_worker()
"""
MINE = """
import os, time
def waits_in_vain():
    print(os.getpid(), flush=True)
    time.sleep(600)
"""


def beat(pid):
    return Beat(rank=0, world=1, pid=pid, step=0, doing=READING, beats=0, calls=0, call="")


@pytest.fixture
def sleeper(tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    process = subprocess.Popen([sys.executable, "-c", RANK, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    worker = int(process.stdout.readline())
    yield process
    for pid in (worker, process.pid):
        os.kill(pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()


def test_a_rank_and_its_worker_are_seen_also_when_it_is_stopped(sleeper):
    (running,) = stands_of([beat(sleeper.pid)])
    assert running.frames[-1].function == "waits_for_its_worker"
    assert [frames[-1].function for frames in running.workers] == ["waits_in_vain"]
    assert not running.is_stopped
    os.kill(sleeper.pid, signal.SIGSTOP)
    os.waitpid(sleeper.pid, os.WUNTRACED)
    (stopped,) = stands_of([beat(sleeper.pid)])
    assert stopped.is_stopped
    assert stopped.frames[-1].function == "waits_for_its_worker"


def test_a_look_that_fails_is_taken_again(monkeypatch):
    """Of a process that computes py-spy sees a stack that moves, and then prints none."""
    looks = []
    command = spy.dump_command

    def failing_twice(program, pid):
        looks.append(pid)
        return ["false"] if len(looks) < 3 else command(program, pid)

    monkeypatch.setattr(spy, "dump_command", failing_twice)
    spinning = subprocess.Popen(
        [sys.executable, "-c", "print(1, flush=True)\nwhile True: pass"], stdout=subprocess.PIPE
    )
    try:
        assert spinning.stdout.readline() == b"1\n"
        (stand,) = stands_of([beat(spinning.pid)])
    finally:
        spinning.kill()
        spinning.communicate()
    assert stand.frames
    assert len(looks) >= 3


def test_without_a_look_there_are_no_frames(monkeypatch):
    monkeypatch.setattr(spy, "find", lambda: Absent("py-spy is not installed"))
    (stand,) = stands_of([beat(os.getpid())])
    assert (stand.frames, stand.workers) == ((), ())


def test_a_thread_sees_where_the_main_thread_is(monkeypatch):
    monkeypatch.setattr(stacks, "_looks", lambda pids: {})
    found = []

    def main_thread_waits_here():
        thread = threading.Thread(target=lambda: found.extend(stand_here([beat(os.getpid())])))
        thread.start()
        thread.join()

    main_thread_waits_here()
    own = [frame for frame in found[0].frames if Path(frame.file).name == Path(__file__).name]
    assert own[-1].function == "main_thread_waits_here"
