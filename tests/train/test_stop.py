"""Every signal in every phase: the state is saved at a step boundary, the exit code says what to do, and it goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import time

import psutil
import pytest

from gpudoc.errors import ExitCode
from gpudoc.train.state import checkpoint
from gpudoc.train.stop import Stop, slurm_deadline
from tests.train.support import metrics, start, summary, train_here, write_workload


def wait_for(path, pattern, process, seconds=60.0):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and process.poll() is None:
        if list(path.glob(pattern)):
            return
        time.sleep(0.02)
    raise AssertionError(f"no {pattern}: {process.communicate(timeout=20)}")


def wait_for_lines(run, count, process):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        if (run / "metrics.jsonl").exists() and len(metrics_safe(run)) >= count:
            return
        time.sleep(0.02)
    raise AssertionError(f"too few logged steps: {process.communicate(timeout=20)}")


def metrics_safe(run):
    return (run / "metrics.jsonl").read_text().splitlines()


CASES = {
    # phase -> (data args, model args, config)
    "step": ({}, {"sleep": 0.02}, {}),
    "loader_wait": ({"sleep": 0.1}, {}, {}),
    "evaluation": ({}, {}, {"evaluated": True, "eval_every": 2}),
    "checkpoint": ({}, {}, {"checkpoint_every": 1}),
}


@pytest.mark.parametrize(
    ("phase", "number", "code"),
    [
        # the full grid of phases and signals is campaigns/train_signals.py
        ("step", signal.SIGTERM, 75),
        ("loader_wait", signal.SIGINT, 130),
        pytest.param("loader_wait", signal.SIGUSR1, 75, marks=pytest.mark.slow),
        pytest.param("evaluation", signal.SIGTERM, 75, marks=pytest.mark.slow),
        pytest.param("checkpoint", signal.SIGINT, 130, marks=pytest.mark.slow),
    ],
)
def test_a_signal_to_the_whole_group_saves_and_says_how_to_go_on(tmp_path, phase, number, code):
    data, model, train = CASES[phase]
    write_workload(tmp_path, data=data, model=model, log_every=1, **train)
    line = ("--model", "cfg.yaml", "--profile", "off", "--num-workers", 2, "--steps", 100_000, "--no-preflight")
    process = start(tmp_path, *line, start_new_session=True)
    run = tmp_path / "runs" / "cfg"
    try:
        wait_for_lines(run, 1 if phase == "loader_wait" else 4, process)
        children = psutil.Process(process.pid).children(recursive=True)
        os.killpg(process.pid, number)
        out, err = process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == code, err
    assert "continue with: gpudoc train" in out
    assert "Traceback" not in err
    found, bad = checkpoint.newest_good(run / "checkpoints")
    assert not bad
    assert summary(run)["status"] == "stopped"
    assert found.name == f"step-{summary(run)['steps']}"
    assert not [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]


def test_a_second_ctrl_c_leaves_at_once_with_the_last_good_checkpoint(tmp_path):
    write_workload(tmp_path, data={"sleep": 0.001}, model={"sleep": 30.0}, log_every=1, checkpoint_every=1)
    line = ("--model", "cfg.yaml", "--profile", "off", "--steps", 100, "--no-preflight")
    # the first step outlasts every wait below; an older checkpoint is there
    write_workload(tmp_path, model={"sleep": 0.0}, log_every=1, checkpoint_every=1)
    assert train_here(tmp_path, *line[:4], "--steps", 2, "--run-dir", "r") == 0
    (tmp_path / "r" / "summary.json").unlink()
    text = (tmp_path / "tiny_workload.py").read_text()
    (tmp_path / "tiny_workload.py").write_text(
        text.replace("if self.seconds:", "if True:").replace(
            "time.sleep(self.seconds)", "open('in_step', 'w').close(); [time.sleep(0.1) for _ in range(9000)]"
        )
    )
    process = start(tmp_path, *line, "--run-dir", "r")
    try:
        while "steps 2 -> 100" not in process.stderr.readline():
            pass
        wait_for(tmp_path, "in_step", process)
        # two that arrive before either is handled are one
        for _ in range(100):
            process.send_signal(signal.SIGINT)
            try:
                assert process.wait(0.5) == ExitCode.INTERRUPTED
                break
            except subprocess.TimeoutExpired:
                pass
    finally:
        process.kill()
    assert "--resume r" in process.stderr.read()
    assert checkpoint.newest_good(tmp_path / "r" / "checkpoints")[0].name == "step-2"


# a run that is not to end before it is killed, however seldom this process comes to look
HELD = """            from pathlib import Path
            self.calls = getattr(self, "calls", 0) + 1
            while self.calls > 9 and not Path("go").exists():
                time.sleep(0.01)
"""


def test_kill_9_and_the_same_command_goes_on(tmp_path):
    write_workload(tmp_path, data={"draw": "torch"}, model={"sleep": 0.01}, log_every=1, checkpoint_every=3)
    module = tmp_path / "tiny_workload.py"
    module.write_text(module.read_text().replace("            time.sleep(self.seconds)\n", HELD))
    line = ("--model", "cfg.yaml", "--profile", "off", "--steps", 40, "--num-workers", 1, "--no-preflight")
    process = start(tmp_path, *line)
    run = tmp_path / "runs" / "cfg"
    # one that is due while another is written comes a step later, so which ones there are is not known
    wait_for(run, "checkpoints/step-[0-9]", process)
    children = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.communicate(timeout=60)
    (tmp_path / "go").touch()
    assert train_here(tmp_path, *line) == 0
    assert summary(run)["resumed_from"].startswith("step-")
    steps = [row["step"] for row in metrics(run)]
    assert steps == list(range(1, 41))
    _, alive = psutil.wait_procs(children, timeout=60)
    assert not alive, "workers outlived their parent"


def test_the_time_limit_asks_to_be_started_again():
    stop = Stop(deadline=time.time() + 100)
    stop.check_time(10)
    assert not stop.asked
    stop.check_time(200)
    assert stop.exit_code == ExitCode.RESUME


def test_the_first_reason_counts():
    stop = Stop()
    stop.ask("one", ExitCode.RESUME)
    stop.ask("two", ExitCode.INTERRUPTED)
    assert (stop.reason, stop.exit_code) == ("one", ExitCode.RESUME)


def test_slurm_says_when_the_job_ends(monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.delenv("SLURM_JOB_END_TIME", raising=False)
    assert slurm_deadline() is None
    monkeypatch.setenv("SLURM_JOB_END_TIME", "1800000000")
    assert slurm_deadline() == 1_800_000_000


def test_a_clock_that_is_set_while_it_trains_moves_no_deadline(monkeypatch):
    real = time.time
    near, far = Stop(real() + 100), Stop(real() + 100_000)
    monkeypatch.setattr(time, "time", lambda: real() + 50_000)
    far.check_time(10.0)
    assert not far.asked
    monkeypatch.setattr(time, "time", lambda: real() - 50_000)
    near.check_time(1000.0)
    assert near.asked
    assert near.reason == "the time limit is near"
