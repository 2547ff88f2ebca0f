import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpudoc.process.lifetime import is_running
from gpudoc.process.loader_workers import shorten_socket_paths
from tests.process import loads_with_a_worker


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
    until = time.monotonic() + 30
    while is_running(worker) and time.monotonic() < until:
        time.sleep(0.05)
    assert not is_running(worker)
