import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpudoc.tune.trial.sweep import PROCESSES, sweep_shared_memory
from tests.namespaces import unshared

SHARED = Path("/dev/shm")
NOTE = "from gpudoc.tune.trial.sweep import note_process as it; it(); import os; print(os.getpid())"
# a number that no process has here
NOBODY = 4_194_999


@pytest.fixture
def memory(request):
    """Files in /dev/shm by name, removed afterwards."""
    made = []

    def make(name):
        path = SHARED / name
        path.write_text("x")
        made.append(path)
        return path

    yield make
    for path in made:
        path.unlink(missing_ok=True)


def noted(folder):
    """The number of a process that said it was the search's own, and has ended."""
    environment = {**os.environ, PROCESSES: str(folder)}
    done = subprocess.run([sys.executable, "-c", NOTE], env=environment, capture_output=True, text=True, check=True)
    return int(done.stdout)


def test_shared_memory_of_this_searchs_dead_processes_is_removed_and_all_other_stays(tmp_path, memory):
    own = memory(f"torch_{noted(tmp_path)}_2743_0")
    strangers = memory(f"torch_{NOBODY}_2743_0")
    unnamed = memory(f"torch_{noted(tmp_path)}_mine")
    sweep_shared_memory(tmp_path, time.time() + 60)
    assert own.exists(), "it was there before the trial"
    own = memory(f"torch_{noted(tmp_path)}_2743_0")
    sweep_shared_memory(tmp_path, time.time() - 60)
    assert not own.exists()
    assert strangers.exists()
    assert unnamed.exists()
    assert list(tmp_path.iterdir()) == []


def test_what_a_living_process_made_stays(tmp_path, memory):
    (tmp_path / f"process-{os.getpid()}").touch()
    own = memory(f"torch_{os.getpid()}_2743_0")
    sweep_shared_memory(tmp_path, time.time() - 60)
    assert own.exists()


HOLD = """
import mmap, os, pathlib, sys
with open(sys.argv[1], "w+b") as file:
    file.write(bytes(4096))
    file.flush()
    held = mmap.mmap(file.fileno(), 4096)
print("held", flush=True)
sys.stdin.read()
"""


def test_memory_that_a_process_in_another_pid_namespace_has_mapped_stays(tmp_path, memory):
    """As `docker run --ipc=host` has it: one /dev/shm, and numbers that mean other processes there."""
    command = unshared("--fork", "--pid", *(["--map-root-user"] if os.getuid() else []))
    path = memory(f"torch_{noted(tmp_path)}_2743_0")
    other = subprocess.Popen(
        [*command, sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout.readline() == "held\n"
    notes = list(tmp_path.iterdir())
    sweep_shared_memory(tmp_path, time.time() - 60)
    assert path.exists()
    other.communicate()
    for note in notes:
        note.touch()
    sweep_shared_memory(tmp_path, time.time() - 60)
    assert not path.exists(), "it goes when nobody has it any more"


def _pids_of_workers(folder):
    import torch

    from gpudoc.tune.child.samples import _start_worker

    os.environ[PROCESSES] = folder
    loader = torch.utils.data.DataLoader([torch.zeros(1)] * 4, num_workers=2, worker_init_fn=_start_worker)
    assert len(list(loader)) == 4


def test_the_loader_workers_of_a_trial_say_that_they_are_its_own(tmp_path):
    process = multiprocessing.get_context("spawn").Process(target=_pids_of_workers, args=(str(tmp_path),))
    process.start()
    process.join()
    assert process.exitcode == 0
    assert len(list(tmp_path.glob("process-*"))) == 2
