"""A process ends with its parent, also with one that was gone before it asked for that; orphans find a new one."""

import os
import signal
import subprocess
import sys

import psutil
import pytest

from gpudoc.process.lifetime import is_running

NOBODY = 2**22 + 1


def ends_with(code, **options):
    return subprocess.run([sys.executable, "-c", code], check=False, timeout=120, **options).returncode


def wait_for_end(pid):
    try:
        psutil.Process(pid).wait(timeout=60)
    except psutil.NoSuchProcess:
        return
    except psutil.TimeoutExpired:
        pytest.fail("the child outlived its parent")


def test_a_process_dies_with_its_parent_even_by_sigkill():
    child = "import os, time; from gpudoc.process.lifetime import die_with_parent as d; d(os.getppid()); "
    child += "print(os.getpid(), flush=True); time.sleep(600)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    process = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True)
    pid = int(process.stdout.readline())
    assert is_running(pid)
    process.kill()
    process.communicate()
    wait_for_end(pid)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=lambda number: number.name)
def test_a_process_whose_parent_is_already_gone_ends_at_once(number):
    code = "import signal; from gpudoc.process.lifetime import die_with_parent; "
    code += f"die_with_parent({{}}, signal.{number.name}); raise SystemExit(7)"
    assert ends_with(code.format(os.getpid())) == 7
    assert ends_with(code.format(NOBODY)) == -number


def test_a_parent_that_dies_just_before_the_call_is_not_missed(tmp_path):
    """It is a zombie here, since nobody waits for it, and a zombie has ended."""
    child = f"""
import os, time
from pathlib import Path
from gpudoc.process.lifetime import die_with_parent
parent = os.getppid()
print(os.getpid(), flush=True)
while os.getppid() == parent:
    time.sleep(0.01)
die_with_parent(parent)
Path({str(tmp_path / "lived")!r}).touch()
"""
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    process = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True)
    pid = int(process.stdout.readline())
    process.kill()
    wait_for_end(pid)
    process.communicate()
    assert not (tmp_path / "lived").exists()


def test_a_process_that_a_server_started_for_its_parent_lives():
    child = f"from gpudoc.process.lifetime import die_with_parent; die_with_parent({os.getpid()}); raise SystemExit(7)"
    assert ends_with(f"import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', {child!r}]))") == 7


@pytest.mark.parametrize("wanted", [True, False])
def test_orphans_come_to_the_one_that_adopts_them(wanted):
    code = f"""
import os, subprocess, sys
from gpudoc.process.lifetime import adopt_orphans
adopt_orphans()
adopt_orphans({wanted})
orphan = "import os, sys; sys.stdin.read(); print(os.getppid())"
middle = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {{orphan!r}}])"
process = subprocess.Popen([sys.executable, "-c", middle], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
process.wait()
told, _ = process.communicate()
sys.exit(7 if int(told) == os.getpid() else 8)
"""
    assert ends_with(code) == (7 if wanted else 8)


def test_a_zombie_does_not_run():
    process = subprocess.Popen([sys.executable, "-c", "pass"], stdout=subprocess.PIPE)
    assert process.stdout.read() == b""
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert psutil.pid_exists(process.pid)
    assert not is_running(process.pid)
    process.communicate()
    assert is_running(os.getpid())
    assert not is_running(NOBODY)
