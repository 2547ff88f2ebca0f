"""GPUs in compute mode EXCLUSIVE_PROCESS, usual on SLURM sites: each command gets on with one process on a GPU."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.script.inside._gpudoc_inside.test_gpu_clock import AHEAD, SECOND
from tests.train.support import write_workload

pytestmark = pytest.mark.standin

HOLDS = """
import sys, torch
kept = torch.ones(1, device="cuda")
print("holds", flush=True)
sys.stdin.read()
"""


def line(config, *more):
    return ("--model", str(config), "--device", "cuda", *more)


def test_a_training_and_a_search_have_one_process_on_the_gpu_at_a_time(standin, tmp_path):
    config = write_workload(tmp_path)
    gpus = standin(memory="2G", exclusive=1)
    trained = gpus.gpudoc("train", *line(config, "--profile", "off", "--steps", "2"))
    assert trained.returncode == 0, trained.stderr
    options = ("--only", "batch", "--max-batch", "8", "--budget", "5m", "--json", "--out", "p.yaml")
    tuned = gpus.gpudoc("tune", *line(config, *options))
    assert tuned.returncode == 0, tuned.stderr
    assert json.loads(tuned.stdout)["profile"]["evidence"]["largest_batch"] == 8
    assert not gpus.holders()


def test_a_script_is_looked_at_without_a_second_process_on_its_gpu(standin, tmp_path):
    (tmp_path / "train.py").write_text(AHEAD)
    gpus, command = standin(clock="virtual", memory="1G", exclusive=1), (sys.executable, "train.py", str(SECOND), "0")
    done = gpus.gpudoc("tune", "--only", "look", "--json", "--in-place", "--", *command)
    assert done.returncode == 0, done.stdout
    assert json.loads(done.stdout)["script"]["steps"] > 0


def test_beside_a_process_that_holds_it_the_mode_is_named(standin, tmp_path):
    config = write_workload(tmp_path)
    gpus = standin(memory="2G", exclusive=1)
    holder = [sys.executable, "-c", HOLDS]
    with subprocess.Popen(holder, env=gpus.environment, stdin=-1, stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout.readline() == "holds\n"
            done = gpus.gpudoc("train", *line(config, "--profile", "off", "--steps", "2"))
        finally:
            other.kill()
    assert done.returncode == 1
    assert "xclusive" in done.stderr
    assert "Traceback" not in done.stderr
