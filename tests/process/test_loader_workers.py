import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from gpudoc.process.lifetime import is_running
from gpudoc.process.loader_workers import shorten_socket_paths, start_workers
from tests.process import loads_with_a_worker
from tests.waiting import wait_until


@pytest.fixture
def long_folder(tmp_path):
    folder = tmp_path / ("deep" * 20)
    folder.mkdir()
    return folder


def run(*arguments, **variables):
    command = [sys.executable, loads_with_a_worker.__file__, *arguments]
    return subprocess.run(
        command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=120, check=False
    )


def test_a_worker_hands_over_tensors_below_a_long_temporary_folder(long_folder):
    done = run("short", TMPDIR=str(long_folder))
    total, folder, sockets = done.stdout.split()
    assert (total, folder) == ("6.0", str(long_folder)), done.stderr
    assert len(sockets) < 40
    assert not Path(sockets).exists()


@pytest.mark.slow
def test_without_a_short_folder_torch_waits_in_vain(long_folder):
    done = run("as it is", TMPDIR=str(long_folder))
    assert "AF_UNIX path too long" in done.stderr
    assert "timed out" in done.stderr


def test_a_short_folder_stays_the_one(tmp_path, monkeypatch):
    monkeypatch.setattr("multiprocessing.util.get_temp_dir", lambda: pytest.fail("moved"))
    monkeypatch.setattr("tempfile.tempdir", "/tmp/x")
    shorten_socket_paths()


def test_a_worker_whose_parent_ended_before_it_looked_ends_too():
    done = run("orphan", "start_worker")
    worker = int(done.stdout.split()[0])
    wait_until(lambda: not is_running(worker))


def test_threads_that_send_indices_have_little_stack_and_workers_the_usual():
    done = run("stacks")
    here, there, grown_mib = done.stdout.split()
    assert (here, there) == ("0", "0"), done.stderr
    # two threads of 8 MiB each otherwise
    assert int(grown_mib) < 8


def test_a_thread_that_pins_memory_has_its_usual_stack():
    sizes = []

    class Loader:
        def __iter__(self):
            sizes.append(threading.stack_size())
            return iter(())

    for pins in (True, False):
        start_workers(Loader(), pins=pins)
    assert sizes == [0, 1 << 18]
