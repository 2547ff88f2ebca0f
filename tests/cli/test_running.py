"""`gpudoc train -- COMMAND` as a person calls it: exit codes, refusals, a terminal, a job for SLURM."""

from __future__ import annotations

import json
import os
import pathlib
import pty
import shlex
import subprocess
import sys

import pytest

from gpudoc.cli import app
from gpudoc.process.arguments import AS_MODULE

ROOT = pathlib.Path(__file__).resolve().parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


def train(*arguments, **more):
    return subprocess.run(
        [sys.executable, "-m", "gpudoc", "train", *map(str, arguments)],
        capture_output=True, text=True, env=ENVIRONMENT, timeout=200, check=False, **more,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("script", "code"),
    [("exit 0", 0), ("exit 1", 1), ("exit 75", 75), ("kill -TERM $$", 143), ("kill -9 $$", 137)],
)
def test_the_exit_code_is_the_commands_and_so_is_stdout(script, code):
    done = train("--", "sh", "-c", f"echo out; {script}")
    assert (done.returncode, done.stdout) == (code, "out\n")
    assert "gpudoc: the command ended" in done.stderr


def test_json_is_one_document_and_a_refusal_is_an_error_document():
    done = train("--json", "--", "sh", "-c", "echo out; exit 4")
    assert done.returncode == 4
    assert json.loads(done.stdout)["command"] == {"exit_code": 4, "signal": None}
    assert "out\n" in done.stderr
    refused = train("--json", "--", "no-such-program")
    assert refused.returncode == 2
    assert json.loads(refused.stdout)["schema"] == "gpudoc.error.v1"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--steps", "3", "--", "true"], "--steps goes with --model"),
        (["--batch-size=3", "--", "true"], "--batch-size goes with --model"),
        (["--gpus", "2", "--", "true"], "--gpus goes with --model"),
        (["--on-hang", "wait", "--", "true"], "--on-hang wait"),
        (["--allow", "network", "--", "true"], "train accepts only --allow batch"),
        (["--allow", "batch"], "--allow goes with a command"),
        (["--profile", "none.yaml", "--", "true"], "none.yaml"),
        (["--", "python", "{batch}"], "no profile gives a number for it"),
    ],
)
def test_what_makes_no_sense_is_the_users_mistake(arguments, says, capfd):
    assert app.run(["train", *arguments]) == 2
    out, err = capfd.readouterr()
    assert says in err
    assert "try: " in err
    assert out == ""


def test_a_script_that_needs_a_terminal_has_one():
    script = "import sys; print(sys.stdin.isatty(), sys.stdout.isatty()); print('you said', input('go on? '))"
    pid, terminal = pty.fork()
    if not pid:
        os.environ.update(ENVIRONMENT)
        os.execv(sys.executable, [sys.executable, "-m", "gpudoc", "train", "--", sys.executable, "-c", script])
    said = b""
    while b"go on?" not in said:
        said += os.read(terminal, 1000)
    os.write(terminal, b"yes\n")
    try:
        while more := os.read(terminal, 1000):
            said += more
    except OSError:
        pass
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert b"True True\r\n" in said
    assert b"you said yes\r\n" in said
    os.close(terminal)


def test_ctrl_c_on_a_terminal_reaches_the_script_once_and_a_second_one_ends_it():
    script = (
        # a handler that prints may come within a print, which Python refuses
        "import os, signal, time; signal.signal(2, lambda *_: os.write(1, b'heard\\n')); "
        "print('ready', flush=True); [time.sleep(0.05) for _ in range(4000)]"
    )
    pid, terminal = pty.fork()
    if not pid:
        os.environ.update(ENVIRONMENT)
        os.execv(sys.executable, [sys.executable, "-m", "gpudoc", "train", "--", sys.executable, "-c", script])
    said = read_until(terminal, b"ready\r\n")
    os.write(terminal, b"\x03")
    said += read_until(terminal, b"Ctrl+C again ends it at once")
    if b"heard\r\n" not in said:
        said += read_until(terminal, b"heard\r\n")
    # two at once would be one wish
    said += read_for(terminal, 0.5)
    assert said.count(b"heard\r\n") == 1
    os.write(terminal, b"\x03")
    said += read_until(terminal, b"the command ended by SIGINT", b"interrupted; it ended by SIGINT")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 130
    os.close(terminal)


def read_until(terminal, *ends):
    said = b""
    while not any(end in said for end in ends):
        said += os.read(terminal, 1000)
    return said


def read_for(terminal, seconds):
    import select
    import time

    said, until = b"", time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        if select.select([terminal], [], [], left)[0]:
            said += os.read(terminal, 1000)
    return said


def test_a_job_for_slurm_runs_the_same_command(tmp_path):
    place = tmp_path / "job.sh"
    done = train(
        "--slurm", place, "--profile", "off", "--", "torchrun", "--nproc-per-node", "4", "train.py", "--name", "a  b"
    )
    assert done.returncode == 0
    assert str(place) in done.stdout
    rows = place.read_text().splitlines()
    assert "#SBATCH --gpus-per-node=4" in rows
    assert "#SBATCH --job-name=train" in rows
    command = "train --profile off --plain -- torchrun --nproc-per-node 4 train.py --name 'a  b'"
    assert rows[-1] == f"exec {shlex.join([sys.executable, *AS_MODULE])} gpudoc {command}"
    assert not any(row.startswith("#SBATCH --signal") for row in rows)
    assert subprocess.run(["bash", "-n", place], check=False).returncode == 0


TRAINS = """
import sys, time, torch
from torch.utils.data import DataLoader, TensorDataset
data = TensorDataset(torch.randn(64, 4))
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for (x,) in DataLoader(data, batch_size=8):
    model(x).sum().backward()
    optimizer.step()
print("trained")
"""


def test_a_plain_script_is_seen_without_a_change_to_it(tmp_path):
    (tmp_path / "train.py").write_text(TRAINS)
    done = train("--json", "--", sys.executable, "train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["steps"], found["ranks"]) == (8, 1)
    assert found["loaders"][0]["at"] == "train.py:7"
    assert found["memory_peak_bytes"] > 0
    assert "trained" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


@pytest.mark.slow
def test_a_profile_is_found_and_its_loader_put_in(tmp_path):
    from importlib.metadata import version

    from gpudoc.profile.model import Hardware, Loader, Made, Profile, Script, ScriptLoader, Settings
    from gpudoc.profile.store import save
    from gpudoc.script.remember import workload_of

    (tmp_path / "train.py").write_text(TRAINS)
    command = [sys.executable, "train.py"]
    seen = json.loads(train("--json", "--", *command, cwd=tmp_path).stdout)["loaders"][0]
    assert seen["applied"] == {}
    profile = Profile(
        made=Made(at="now", gpudoc="0.1.0", seconds=1, trials=1),
        hardware=Hardware(device="cpu", torch=version("torch")),
        workload=workload_of(command),
        settings=Settings(
            precision="fp32", micro_batch=16, loader=Loader(num_workers=1, prefetch_factor=3, persistent_workers=True)
        ),
        script=Script(
            loaders=(ScriptLoader(at=seen["at"], key=seen["key"], role="training", batch_size=8),),
            lever="loader",
            tuned=("loader", "batch"),
        ),
    )
    path = save(profile, tmp_path / "profile.yaml")
    done = train("--json", "--profile", path, "--allow", "batch", "--", *command, cwd=tmp_path)
    found = json.loads(done.stdout)
    applied = found["loaders"][0]["applied"]
    assert applied == {"batch_size": 16, "num_workers": 1, "prefetch_factor": 3, "persistent_workers": True}
    assert found["steps"] == 4
    assert found["profile"] == "profile.yaml"
