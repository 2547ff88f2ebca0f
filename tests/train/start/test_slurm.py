"""The sbatch file: readable, valid bash, and its flow run for real with srun and scontrol played by scripts."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpudoc.process.arguments import AS_MODULE
from gpudoc.train.start.slurm import SlurmJob, sbatch_text


def job(tmp_path: Path, **changes) -> SlurmJob:
    plain = {
        "name": "quickstart",
        "arguments": ["--model", "my cfg.yaml"],
        "python": sys.executable,
        "folder": str(tmp_path),
        "ranks": 2,
        "on_gpu": True,
    }
    return SlurmJob(**{**plain, **changes})


def test_the_file_asks_for_what_the_run_needs(tmp_path):
    text = sbatch_text(job(tmp_path, nodes=3, hours=12))
    rows = text.splitlines()
    assert rows[0] == "#!/bin/bash"
    for row in (
        "#SBATCH --nodes=3",
        "#SBATCH --gpus-per-node=2",
        "#SBATCH --time=12:00:00",
        "#SBATCH --cpus-per-task=8",
    ):
        assert row in rows
    assert "--requeue" in text
    assert "--signal=B:USR1@" in text
    assert "doctor --quick --plain --expect-gpus 2" in text
    assert f"{' '.join(AS_MODULE)} gpudoc train --model 'my cfg.yaml' --gpus 2 --plain" in text


def test_a_command_is_run_as_it_is_and_not_queued_again_by_itself(tmp_path):
    text = sbatch_text(
        job(tmp_path, arguments=["--profile", "auto"], command=["torchrun", "train.py", "--name", "a  b"])
    )
    rows = text.splitlines()
    python = shlex.join([sys.executable, *AS_MODULE])
    assert rows[-1] == f"exec {python} gpudoc train --profile auto --plain -- torchrun train.py --name 'a  b'"
    assert "doctor --quick --plain --expect-gpus 2" in text
    assert any(row.startswith("#SBATCH --no-requeue") for row in rows)
    assert not any(row.startswith("#SBATCH --signal") for row in rows)
    assert "scontrol" not in text
    assert subprocess.run(["bash", "-n"], input=text, text=True, check=False).returncode == 0


def test_a_cpu_job_asks_for_no_gpu(tmp_path):
    text = sbatch_text(job(tmp_path, on_gpu=False))
    assert "gpus-per-node" not in text
    assert "expect-gpus" not in text


def test_it_is_valid_bash(tmp_path):
    checked = subprocess.run(["bash", "-n"], input=sbatch_text(job(tmp_path)), text=True, capture_output=True)
    assert checked.returncode == 0, checked.stderr


# what `srun` starts is played by a process that saves on SIGUSR1 and says 75, as the training does; SIGTERM would end
# it, as srun then kills what it runs
TRAINS = """
import signal, sys, time
def stop(*_):
    open("saved", "w").close()
    time.sleep(0.5)
    sys.exit(75)
signal.signal(signal.SIGUSR1, stop)
open("ready", "w").close()
for _ in range(600):
    time.sleep(0.1)
"""


@pytest.fixture
def cluster(tmp_path):
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    (tmp_path / "trains.py").write_text(TRAINS)

    def play(name: str, body: str) -> None:
        (bin_folder / name).write_text(f"#!/bin/bash\n{body}\n")
        (bin_folder / name).chmod(0o755)

    play("scontrol", f'echo "scontrol $*" >> {tmp_path}/calls; [ "$1" = show ] && echo node1; exit 0')
    environment = {
        **os.environ,
        "PATH": f"{bin_folder}:{os.environ['PATH']}",
        "SLURM_JOB_ID": "12345",
        "SLURM_JOB_NODELIST": "node[1-2]",
    }
    (tmp_path / "job.sh").write_text(sbatch_text(job(tmp_path)))
    return tmp_path, environment, play


def srun_that(training: str, doctor_status: int = 0) -> str:
    return f'case "$*" in *doctor*) exit {doctor_status};; esac\necho "$MASTER_ADDR $MASTER_PORT" > meeting\n{training}'


def wait_for(path: Path) -> None:
    until = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < until, f"{path.name} did not come"
        time.sleep(0.05)


def test_the_knock_before_the_limit_saves_and_queues_again(cluster):
    folder, environment, play = cluster
    play("srun", srun_that(f"exec {sys.executable} trains.py"))
    process = subprocess.Popen(["bash", "job.sh"], cwd=folder, env=environment, stdout=subprocess.DEVNULL)
    wait_for(folder / "ready")
    process.send_signal(signal.SIGUSR1)
    assert process.wait(60) == 75
    assert (folder / "saved").exists()
    assert "scontrol requeue 12345" in (folder / "calls").read_text()
    assert (folder / "meeting").read_text().split() == ["node1", str(20000 + 12345)]


@pytest.mark.parametrize("code", [0, 1])
def test_a_run_that_ended_is_not_queued_again(cluster, code):
    folder, environment, play = cluster
    play("srun", srun_that(f"exit {code}"))
    assert subprocess.run(["bash", "job.sh"], cwd=folder, env=environment, timeout=60).returncode == code
    assert "requeue" not in (folder / "calls").read_text()


def test_nothing_trains_on_a_node_that_the_doctor_finds_broken(cluster):
    folder, environment, play = cluster
    play("srun", srun_that("touch trained", doctor_status=1))
    assert subprocess.run(["bash", "job.sh"], cwd=folder, env=environment, timeout=60).returncode == 1
    assert not (folder / "trained").exists()


@pytest.mark.parametrize("name", ["a\ntouch pwned\n#", "my run; touch pwned", "$(touch pwned)", "größe", "\x1b[8m"])
def test_no_name_of_a_config_adds_a_line_or_a_word_to_the_file(tmp_path, name):
    plain, hostile = (sbatch_text(job(tmp_path, name=one)) for one in ("x", name))
    assert len(hostile.splitlines()) == len(plain.splitlines())
    named = [line for line in hostile.splitlines() if line.startswith(("#SBATCH --job-name=", "#SBATCH --output="))]
    assert len(named) == 2
    assert all(re.fullmatch(r"#SBATCH --[a-z-]+=[\w.%-]+", line, re.ASCII) for line in named)


def test_an_argument_with_blanks_stays_as_it_is(tmp_path):
    assert "'two  blanks.yaml'" in sbatch_text(job(tmp_path, arguments=["--model", "two  blanks.yaml"]))
