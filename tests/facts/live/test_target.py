import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpudoc.errors import GpudocError
from gpudoc.facts.live.target import choose, is_python, loads_torch
from gpudoc.facts.live.tree import descendants
from tests.waiting import wait_until


def test_no_such_process_is_told_with_what_to_type():
    with pytest.raises(GpudocError, match="no process 4194200 runs here") as problem:
        choose(4194200)
    assert problem.value.hint


def test_a_process_that_has_finished():
    child = os.fork()
    if child == 0:
        os._exit(0)
    # it has ended, and stays a zombie
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    try:
        with pytest.raises(GpudocError, match="has finished"):
            choose(child)
    finally:
        os.waitpid(child, 0)


def test_not_python_and_nothing_of_it_is():
    with subprocess.Popen(["sleep", "60"]) as job:
        try:
            with pytest.raises(GpudocError, match=r"\(sleep\) is not a Python process"):
                choose(job.pid)
        finally:
            job.kill()


def test_gpudoc_does_not_watch_itself():
    with pytest.raises(GpudocError, match="this gpudoc itself"):
        choose(os.getpid())


def test_below_a_shell_the_python_is_found():
    command = f"{sys.executable} -c 'import time; time.sleep(60)'; true"
    with subprocess.Popen(["sh", "-c", command], start_new_session=True) as job:
        try:
            wait_until(lambda: any(map(is_python, descendants(job.pid)[1:])))
            target = choose(job.pid)
            assert target.pid != job.pid
            assert is_python(target.pid)
            assert not loads_torch(target.pid)
            assert "is not Python" in target.note
        finally:
            os.killpg(job.pid, 9)


def test_one_rank_leads_to_its_launcher(tmp_path):
    launcher = tmp_path / "torchrun"
    launcher.write_text(
        "import os, subprocess, sys\n"
        "rest = 'import time; time.sleep(60)'\n"
        "child = subprocess.Popen([sys.executable, '-c', rest], env={**os.environ, 'RANK': '0'})\n"
        "print(child.pid, flush=True)\n"
        "child.wait()\n"
    )
    with subprocess.Popen([sys.executable, launcher], stdout=subprocess.PIPE, start_new_session=True) as job:
        try:
            rank = int(job.stdout.readline())
            wait_until(lambda: b"RANK=0" in Path(f"/proc/{rank}/environ").read_bytes())
            target = choose(rank)
            assert target.pid == job.pid
            assert "all ranks" in target.note
        finally:
            os.killpg(job.pid, 9)


def test_without_proc_it_is_told_what_is_missing(tmp_path):
    with pytest.raises(GpudocError, match="needs the /proc of Linux"):
        choose(1, root=str(tmp_path))
