import os
import subprocess
import sys

import psutil
import pytest


def test_a_process_dies_with_its_parent_even_by_sigkill():
    child = "import os, time; from gpudoc.tune.trial.fork_server import die_with_parent as d; d(os.getppid()); "
    child += "print(os.getpid(), flush=True); time.sleep(600)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    process = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True)
    pid = int(process.stdout.readline())
    assert psutil.pid_exists(pid)
    orphan = psutil.Process(pid)
    process.kill()
    process.wait()
    try:
        orphan.wait(timeout=20)
    except psutil.TimeoutExpired:
        pytest.fail("the child outlived its parent")
    assert os.getpid() != pid
