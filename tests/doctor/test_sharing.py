import os
import signal
import subprocess
import sys

import pytest

from gpudoc.doctor import sharing
from gpudoc.doctor.sharing import name_sharers, require_alone, sharers
from gpudoc.errors import ExitCode, GpudocError
from gpudoc.facts.model import Absent, GpuProcess
from tests.machines.built import GIB, gpu, machine

# above what Linux gives out, so nobody's
PID = 2**22 + 7


def held(pid=PID, sm=90, name="python", **facts):
    return GpuProcess(pid=pid, memory_bytes=8 * GIB, name=name, alive=True, sm_percent=sm, **facts)


@pytest.mark.parametrize(
    ("process", "computes"),
    [
        pytest.param(held(), True, id="at work"),
        pytest.param(held(sm=0), False, id="at rest"),
        pytest.param(held(sm=Absent("the driver does not say")), True, id="no figure"),
        pytest.param(held(name="Xorg"), False, id="a screen"),
        pytest.param(held(name="gnome-shell", sm=Absent("the driver does not say")), False, id="a desktop"),
        pytest.param(held(name="nvidia-cuda-mps-server"), False, id="MPS"),
        pytest.param(held(name="Xtrain"), True, id="begins like Xorg"),
        pytest.param(held(name=Absent("hidden")), True, id="no name"),
        pytest.param(held(pid=os.getpid()), False, id="this process"),
        pytest.param(held(pid=os.getppid()), False, id="its parent"),
    ],
)
def test_who_computes(process, computes):
    assert bool(sharers(gpu(0, processes=(process,)))) is computes


def test_a_process_that_is_gone_and_the_instances_of_mig_do_not_count():
    gone = GpuProcess(pid=PID, alive=False, memory_bytes=GIB)
    assert sharers(gpu(0, processes=(gone,))) == ()
    assert sharers(gpu(0, processes=(held(),), mig_enabled=True)) == ()
    assert sharers(gpu(0, processes=Absent("no permission"))) == ()


def test_what_this_run_started_is_its_own_and_what_runs_beside_it_is_not(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True) as child:
        assert sharers(gpu(0, processes=(held(pid=child.pid),))) == ()
        # a notebook's kernel that started this run
        assert sharers(gpu(0, processes=(held(pid=os.getppid()),))) == ()
    orphan = subprocess.run(["sh", "-c", "sleep 60 >&- 2>&- & echo $!"], stdout=subprocess.PIPE, check=True)
    try:
        assert sharers(gpu(0, processes=(held(pid=int(orphan.stdout)),)))
    finally:
        os.kill(int(orphan.stdout), signal.SIGKILL)


@pytest.mark.parametrize("engine", ["RANK", "SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_RANK", "PMI_RANK"])
def test_what_the_same_engine_started_beside_this_process_is_no_stranger(engine, monkeypatch):
    for name in ("RANK", "SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_RANK", "PMI_RANK"):
        monkeypatch.delenv(name, raising=False)
    # a rank's process beside this one, below the same parent
    monkeypatch.setattr(sharing, "_above", lambda pid: [os.getppid()] if pid == PID else [])
    busy = gpu(0, processes=(held(),))
    assert sharers(busy)
    monkeypatch.setenv(engine, "1")
    assert sharers(busy) == ()


def test_without_shared_it_ends_and_names_who_and_where():
    busy = gpu(0, processes=(held(user="ann", command="python train.py"),))
    with pytest.raises(GpudocError) as caught:
        require_alone(machine(busy, gpu(1)), [0], shared=False)
    problem = caught.value
    assert problem.exit_code is ExitCode.BAD_ANSWER
    assert problem.message == f"other processes compute on cuda:0: ann's python train.py (pid {PID}) holds 8 GiB"
    assert problem.hint.startswith("--device cuda:1, which is idle; or --shared")
    assert "kill" not in problem.hint


def test_what_is_the_callers_own_may_be_ended():
    with pytest.raises(GpudocError) as caught:
        require_alone(machine(gpu(0, processes=(held(own=True),))), [0], shared=False)
    assert caught.value.hint.startswith(f"stop your own processes: kill -TERM {PID}; or --shared")


def test_with_shared_it_goes_on_and_says_so():
    busy = gpu(0, processes=(held(user="ann"),))
    assert "ann's python" in require_alone(machine(busy), [0], shared=True)
    assert require_alone(machine(gpu(0)), [0], shared=False) == ""
    assert require_alone(machine(busy, gpu(1)), [1], shared=False) == ""


def test_many_are_counted():
    named = name_sharers([held(pid=PID + n) for n in range(5)])
    assert named.count("holds") == 3
    assert named.endswith("; 2 more")
