"""What gpudoc does, and what it says, on systems that have less than Linux; docs/platforms.md tells the same."""

import os
import subprocess
import sys

import pytest

from gpudoc import facts
from gpudoc.doctor.device import choose
from gpudoc.errors import GpudocError
from gpudoc.facts.live import job, target
from gpudoc.facts.model import Machine
from gpudoc.tune import conditions

OLD_DRIVER = "UserWarning: CUDA initialization: The NVIDIA driver on your system is too old (found version 11040).\n"
# what Python lacks on Windows: gone for gpudoc, while the libraries that it uses keep theirs
WINDOWS = """
import builtins, getpass, os, signal, sys
import multiprocessing.popen_fork, psutil, pydantic, rich, subprocess, typer, yaml
real = builtins.__import__
def guarded(name, globals=None, *rest, **named):
    own = str((globals or {}).get("__name__", "")).split(".")[0] in ("gpudoc", "getpass")
    if own and name in ("resource", "fcntl", "termios", "pwd", "grp", "pty", "tty", "syslog"):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    return real(name, globals, *rest, **named)
builtins.__import__ = guarded
for name in ("O_NONBLOCK", "O_CLOEXEC", "O_NOCTTY", "fork", "getuid", "geteuid", "getpgid", "killpg", "setsid",
             "statvfs", "sysconf", "getloadavg", "sched_getaffinity", "posix_fadvise"):
    delattr(os, name)
from gpudoc.cli.app import run
sys.exit(run(sys.argv[1:]))
"""


def as_on_windows(*arguments, text=None):
    kept = {name: value for name, value in os.environ.items() if name not in ("USER", "LOGNAME", "LNAME", "USERNAME")}
    command = [sys.executable, "-c", WINDOWS, *arguments]
    return subprocess.run(command, input=text, capture_output=True, text=True, env=kept, check=False)


@pytest.mark.parametrize("arguments", [("doctor", "train.log"), ("doctor", "-"), ("doctor", "--json", "train.log")])
def test_a_log_is_read_where_what_only_unix_has_is_missing(tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.log").write_text(OLD_DRIVER)
    done = as_on_windows(*arguments, text=OLD_DRIVER)
    assert done.returncode == 1, done.stderr
    assert "driver_too_old" in done.stdout
    assert not done.stderr


def test_causes_are_explained_where_what_only_unix_has_is_missing():
    done = as_on_windows("doctor", "--explain", "driver_too_old")
    assert done.returncode == 0, done.stderr
    assert "means:" in done.stdout


def test_a_machine_that_runs_windows_is_not_examined_and_the_way_out_is_said(monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(GpudocError, match="this is Windows") as told:
        facts.collect(quick=True)
    assert "WSL 2" in told.value.hint
    assert "gpudoc doctor train.log" in told.value.hint


def test_a_job_is_not_watched_without_the_proc_of_linux(tmp_path, monkeypatch):
    with pytest.raises(GpudocError, match="needs the /proc of Linux"):
        target.check_system(str(tmp_path))
    started = []
    monkeypatch.setattr(job, "check_system", lambda: target.check_system(str(tmp_path)))
    monkeypatch.setattr(job, "_Job", lambda *given: started.append(given))
    with pytest.raises(GpudocError, match="needs the /proc of Linux"):
        facts.launch(["true"], seconds=1, listener=None)
    assert not started


def test_tuning_needs_fork_and_on_a_cpu_the_proc_of_linux(monkeypatch):
    monkeypatch.setattr(conditions, "Path", lambda name: _Nowhere())
    with pytest.raises(GpudocError, match="only Linux has"):
        conditions.check_system(on_gpu=False)
    conditions.check_system(on_gpu=True)
    monkeypatch.delattr(os, "fork")
    with pytest.raises(GpudocError, match="by fork") as told:
        conditions.check_system(on_gpu=True)
    assert "WSL 2" in told.value.hint


class _Nowhere:
    def exists(self):
        return False


@pytest.mark.parametrize("device", ["mps", "xpu", "tpu", "cpu:1"])
def test_a_device_that_gpudoc_does_not_drive_is_refused_with_those_that_it_does(device):
    with pytest.raises(GpudocError, match="no such device") as told:
        choose(device, Machine())
    assert told.value.hint == "--device auto, cpu, cuda or cuda:0"
