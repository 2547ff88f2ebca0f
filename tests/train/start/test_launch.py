"""Starting ranks by itself: how many, on which nodes, with which exit code; real torchrun, signals and kills."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from gpudoc.errors import ExitCode, GpudocError
from gpudoc.train.start import launch
from gpudoc.train.start.launch import (
    Nodes,
    choose_ranks,
    end,
    nodes_here,
    options_of_this_torch,
    torchrun_options,
)
from tests.listeners import listening
from tests.train import support as train

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("gpus", "device", "num_gpus", "ranks"),
    [
        (None, "cuda", 4, 4),
        ("auto", "cuda", 1, 1),
        ("auto", "cuda:1", 4, 1),
        ("2", "cuda", 4, 2),
        ("1", "cuda:3", 4, 1),
        (None, "cpu", 0, 1),
        ("auto", "cpu", 0, 1),
        ("2", "cpu", 0, 2),
    ],
)
def test_ranks_are_gpus_or_what_was_asked_for(gpus, device, num_gpus, ranks):
    assert choose_ranks(gpus, device=device, num_gpus=num_gpus) == ranks


@pytest.mark.parametrize(
    ("gpus", "device", "num_gpus", "says"),
    [
        ("8", "cuda", 4, "has 4"),
        ("0", "cpu", 0, "write auto, or 1 or more"),
        ("all", "cuda", 4, "auto"),
        ("2", "cuda:1", 4, "contradict"),
    ],
)
def test_what_cannot_be_started_is_said(gpus, device, num_gpus, says):
    with pytest.raises(GpudocError, match=says):
        choose_ranks(gpus, device=device, num_gpus=num_gpus)


def test_one_node_is_assumed_unless_slurm_says_more():
    assert nodes_here({}) == Nodes()
    assert nodes_here({"SLURM_STEP_NUM_NODES": "1", "SLURM_JOB_ID": "7"}) == Nodes()
    several = {"SLURM_STEP_NUM_NODES": "2", "SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": "1"}
    found = nodes_here({**several, "MASTER_ADDR": "n1", "MASTER_PORT": "20007"})
    assert found == Nodes(count=2, endpoint="n1:20007", run_id="7.1")
    with pytest.raises(GpudocError, match="MASTER_ADDR"):
        nodes_here(several)


def test_torchrun_is_given_only_what_it_knows():
    from torch.distributed.run import parse_args

    options = [*options_of_this_torch(), *torchrun_options(2, Nodes(count=2, endpoint="n1:20007", run_id="7.1"))]
    parsed = parse_args([*options, "-m", "gpudoc", "train"])
    assert (parsed.nproc_per_node, parsed.nnodes, parsed.rdzv_endpoint, parsed.rdzv_id) == ("2", "2", "n1:20007", "7.1")
    assert parsed.shutdown_timeout == launch.SHUTDOWN_SECONDS
    assert "--local-addr=127.0.0.1" in torchrun_options(2, Nodes())


@pytest.fixture
def exit_file(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv(launch.EXIT_FILE, str(tmp_path / "exit"))
    return tmp_path / "exit"


@pytest.mark.parametrize(
    ("codes", "says"), [((1, -9), "rank 1 ended by SIGKILL"), ((3, 1), "rank 0 ended with code 3")]
)
def test_a_killed_rank_is_named_before_one_that_only_lost_it(monkeypatch, capsys, codes, says):
    """torchrun found both dead in one look, and looks at rank 0 first."""
    from torch.distributed import run as torchrun
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

    def fail(options):
        failures = {}
        for rank, code in enumerate(codes):
            failures[rank] = ProcessFailure(local_rank=rank, pid=10 + rank, exitcode=code, error_file="<none>")
            failures[rank].timestamp = 100 + rank
        raise ChildFailedError("gpudoc", failures)

    monkeypatch.setattr(torchrun, "run", fail)
    # who calls is not the parent, and nothing is to be ended with it here
    monkeypatch.setattr(launch, "die_with_parent", lambda pid, signal: None)
    handled = {number: signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGUSR2)}
    try:
        code = launch.agent(["1", *torchrun_options(2, Nodes()), "-m", "gpudoc", "train"])
    finally:
        for number, handler in handled.items():
            signal.signal(number, handler)
    assert code == ExitCode.BAD_ANSWER
    assert says in capsys.readouterr().err


def test_alone_the_exit_code_is_the_exit_status(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    assert end(75) == (75, True)


def test_the_first_rank_that_ends_on_purpose_speaks_and_its_code_counts(exit_file):
    assert end(ExitCode.OK) == (0, True)
    assert not exit_file.exists()
    assert end(ExitCode.RESUME) == (0, True)
    assert end(ExitCode.NOT_DONE) == (0, False)
    assert exit_file.read_text() == "75"


def test_a_rank_that_lost_its_peer_crashes_unless_the_peer_meant_to_end(exit_file):
    assert end(ExitCode.BAD_ANSWER, lost_peer=True) == (1, True)
    exit_file.write_text("75")
    assert end(ExitCode.BAD_ANSWER, lost_peer=True) == (0, False)


# `python -m gpudoc train` in the ranks is played by a package of that name, so that only the launcher is tried here
RANK = """
import os, signal, sys, time
from pathlib import Path
from real.train.start.launch import end
rank, restarts = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
what, out = sys.argv[2], Path(sys.argv[3])
(out / f"started-{rank}-{restarts}").write_text(str(os.getpid()))
def leave(code, **more):
    status, speaks = end(code, **more)
    if speaks and code:
        sys.stderr.write(f"rank {rank} says {code}\\n")
    sys.exit(status)
if what == "mistake":
    leave(2)
if what == "hang" and rank == 0:
    leave(1)
if what == "hang":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(600)
if what == "die" and rank == 1 and restarts < int(sys.argv[4]):
    os.kill(os.getpid(), signal.SIGKILL)
if what == "die":
    if rank == 0 and restarts < int(sys.argv[4]):
        time.sleep(1)
        leave(1, lost_peer=True)
    leave(0)
heard = []
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda n, f: heard.append(n))
(out / f"ready-{rank}").write_text("")
while not heard:
    time.sleep(0.05)
time.sleep(0.3)
(out / f"saved-{rank}").write_text(str(heard[0]))
leave(130 if heard[0] == signal.SIGINT else 75)
"""
PARENT = """
import sys
from gpudoc.train.start import launch
launch.FOLLOW_SECONDS = 1
sys.exit(launch.launch(sys.argv[1:], ranks=2, cpus=2))
"""


@pytest.fixture
def world(tmp_path):
    """A folder whose `gpudoc` is the real one except for what `-m gpudoc` runs."""
    fake = tmp_path / "path" / "gpudoc"
    fake.mkdir(parents=True)
    for entry in (ROOT / "gpudoc").iterdir():
        if entry.name not in ("__main__.py", "__pycache__"):
            (fake / entry.name).symlink_to(entry)
    (fake / "__main__.py").write_text(textwrap.dedent(RANK).replace("from real.", "from gpudoc."))
    started = []

    def start(*arguments: str) -> subprocess.Popen:
        environment = {**os.environ, "PYTHONPATH": str(fake.parent), "OMP_NUM_THREADS": "1"}
        environment.pop("RANK", None)
        command = [sys.executable, "-c", PARENT, *arguments]
        started.append(subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True, cwd=tmp_path))
        return started[-1]

    yield tmp_path, start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()
        process.stderr.close()


def wait_for(*paths: Path) -> None:
    until = time.monotonic() + 90
    while not all(path.exists() for path in paths):
        assert time.monotonic() < until, f"{paths} did not come"
        time.sleep(0.05)


# what a module still holds when the interpreter is torn down; a thread of gloo at work just then aborts as well
HELD = """
import atexit, os, sys, threading
class Held:
    def __del__(self):
        os.abort()
sys.modules["held"] = Held()
threading.Thread(target=lambda: (threading.main_thread().join(), print("the thread has written"))).start()
atexit.register(print, "left the group")
"""


def _python(code: str, **environment: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-c", HELD + code]
    return subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=120)


def test_a_rank_that_ended_well_cannot_abort_while_python_is_torn_down():
    assert _python("sys.exit(3)").returncode == -signal.SIGABRT
    done = _python("from gpudoc.train.start.launch import exit_rank; exit_rank(3)")
    assert (done.returncode, done.stdout) == (3, "the thread has written\nleft the group\n")


def test_the_command_ends_so_as_a_rank_and_only_then():
    command = "sys.argv = ['gpudoc', '--version']; from gpudoc.cli.app import main; main()"
    with_torch = f"sys.modules['torch'] = os; {command}"
    assert _python(with_torch, RANK="0").returncode == 0
    assert _python(with_torch).returncode == -signal.SIGABRT
    # without torch there is no thread that a rank must not wait for
    assert _python(command, RANK="0").returncode == -signal.SIGABRT


def test_a_mistake_is_said_once_and_not_tried_again(world):
    folder, start = world
    process = start("mistake", str(folder))
    _, said = process.communicate(timeout=90)
    assert process.returncode == 2
    assert said.count("says 2") == 1
    assert "Traceback" not in said
    assert not (folder / "started-0-1").exists()


def test_a_rank_that_hangs_after_the_other_failed_is_ended(world):
    """As it does in NCCL, which does not hear that a peer has gone."""
    folder, start = world
    process = start("hang", str(folder))
    assert process.wait(90) == 1
    pid = int((folder / "started-1-0").read_text())
    assert f"(pid {pid})" in process.stderr.read().partition("killed: ")[2]
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_a_killed_rank_is_started_again_with_the_others(world):
    folder, start = world
    assert start("die", str(folder), "1").wait(120) == 0
    assert (folder / "started-0-1").exists()
    assert (folder / "started-1-1").exists()
    assert not (folder / "started-1-2").exists()


@pytest.mark.parametrize(
    ("number", "code"),
    [pytest.param(signal.SIGUSR1, 75, marks=pytest.mark.slow), (signal.SIGINT, 130)],
    ids=["USR1", "INT"],
)
def test_signals_reach_every_rank_and_its_code_comes_back(world, number, code):
    folder, start = world
    process = start("wait", str(folder))
    wait_for(folder / "ready-0", folder / "ready-1")
    process.send_signal(number)
    assert process.wait(90) == code
    assert (folder / "saved-0").exists()
    assert (folder / "saved-1").exists()


def test_the_ranks_of_one_machine_meet_where_nobody_else_can_come(world):
    folder, start = world
    process = start("wait", str(folder))
    wait_for(folder / "ready-0", folder / "ready-1")
    found = listening(process.pid)
    process.send_signal(signal.SIGINT)
    process.wait(90)
    assert found == []


@pytest.mark.slow
def test_ranks_that_train_listen_on_loopback_alone(tmp_path):
    run = tmp_path / "run"
    process = train.start(tmp_path, "--gpus", "2", "--steps", "100000", "--no-preflight", "--run-dir", run)
    try:
        wait_for(run / "metrics.jsonl")
        assert listening(process.pid)
        assert listening(process.pid, beyond_loopback=True) == []
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)


def without_locks(monkeypatch, *places):
    """Files below these folders know no locks."""
    take = fcntl.flock

    def refuse(file, how):
        if any(str(getattr(file, "name", file)).startswith(str(place)) for place in places):
            raise OSError(errno.ENOLCK, "No locks available")
        return take(file, how)

    monkeypatch.setattr("fcntl.flock", refuse)


def test_where_the_folder_knows_no_locks_ranks_meet_in_memory_and_not_at_a_port(tmp_path, monkeypatch):
    with launch._meeting_place(tmp_path) as place:
        assert place == tmp_path
    without_locks(monkeypatch, tmp_path)
    monkeypatch.setattr(launch, "_MEMORY", tmp_path / "memory")
    (tmp_path / "memory").mkdir()
    with pytest.raises(GpudocError, match="does not support locks") as refused, launch._meeting_place(tmp_path / "tmp"):
        pass
    assert "TMPDIR=" in refused.value.hint
    assert list((tmp_path / "memory").iterdir()) == []
    monkeypatch.setattr(launch, "_MEMORY", Path("/dev/shm"))
    with launch._meeting_place(tmp_path) as place:
        assert place.parent == Path("/dev/shm")
        assert place.stat().st_mode & 0o077 == 0
    assert not place.exists()


def test_no_rank_outlives_a_killed_launcher(world):
    folder, start = world
    process = start("wait", str(folder))
    wait_for(folder / "ready-0", folder / "ready-1")
    process.kill()
    process.wait()
    pids = [int((folder / f"started-{rank}-0").read_text()) for rank in (0, 1)]
    until = time.monotonic() + 60
    while any(psutil.pid_exists(pid) for pid in pids):
        assert time.monotonic() < until, "a rank lives on"
        time.sleep(0.1)
    assert (folder / "saved-0").exists()
