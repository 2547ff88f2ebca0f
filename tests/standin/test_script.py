"""`gpudoc tune -- COMMAND` on a stand-in GPU: the largest batch of a plain script is the card's own."""

from __future__ import annotations

import json
import sys

import pytest

from tests.script.inside._gpudoc_inside.test_gpu_clock import AHEAD, SECOND

pytestmark = pytest.mark.standin

SCRIPT = """
import sys
import torch
from torch.utils.data import DataLoader, TensorDataset

batch = int(sys.argv[1]) if len(sys.argv) > 1 else 64
model = torch.nn.Linear(256, 256).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
data = TensorDataset(torch.zeros(8000, 256))
for step, (x,) in enumerate(DataLoader(data, batch_size=batch, shuffle=True)):
    # keeps 2 MiB a sample for its backward
    kept = model(x.cuda()).unsqueeze(1).expand(-1, 2048, -1).tanh()
    optimizer.zero_grad()
    kept.mean().backward()
    # of large operations only the memory is real: what they leave is no number
    for parameter in model.parameters():
        parameter.grad.zero_()
    optimizer.step()
    if len(sys.argv) > 2 and step == 3:
        break
"""


def test_the_largest_batch_of_a_plain_script_is_proved_under_the_card(standin, tmp_path):
    gpus = standin(memory="2G", math_ops="1e6")
    (tmp_path / "train.py").write_text(SCRIPT)
    command = ("--only", "batch", "--goal", "largest", "--budget", "15m", "--json", "--in-place", "--out", "p.yaml")
    done = gpus.gpudoc("tune", *command, "--", sys.executable, "train.py")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    evidence = told["profile"]["evidence"]
    assert told["script"]["device"] == "cuda:0"
    assert told["script"]["lever"] == "loader"
    # the card's 2 GiB less what a context takes of them
    assert 1500 << 20 < evidence["memory_limit_bytes"] < 1700 << 20
    failed = {row["batch"]: row["end"] for row in evidence["trials"] if not row["fits"]}
    largest, fails_at = evidence["largest_batch"], min(failed)
    assert largest in {row["batch"] for row in evidence["trials"] if row["fits"]}
    assert failed[fails_at] == "oom_device"
    assert 0 < fails_at - largest <= max(2, largest // 100)
    assert gpus.run(sys.executable, "train.py", str(largest), "short").returncode == 0
    alone = gpus.run(sys.executable, "train.py", str(fails_at), "short")
    assert "out of memory" in alone.stderr
    assert gpus.holders() == []


def test_trials_on_a_hot_gpu_are_measured_again(standin, tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    command = ("--only", "batch", "--budget", "5m", "--json", "--in-place", "--out", "p.yaml", "--max-batch", "128")
    done = standin(memory="2G", math_ops="1e6", hot=1, slow_gpu=0, slow_times=300).gpudoc(
        "tune", *command, "--", sys.executable, "train.py"
    )
    assert done.returncode == 0, done.stderr
    assert "heat cut the GPU's clocks in up to 100% of its working time: measured again" in done.stderr


def test_the_speed_of_a_script_that_runs_ahead_of_its_gpu_is_the_gpus(standin, tmp_path):
    """It reads nothing of its GPU and copies without waiting: ten launches a step, long before they run."""
    (tmp_path / "train.py").write_text(AHEAD)
    gpus, command = standin(clock="virtual", memory="1G"), (sys.executable, "train.py", str(SECOND), "0")
    own_s, _ = json.loads(gpus.run(*command).stdout)
    done = gpus.gpudoc("tune", "--only", "look", "--json", "--in-place", "--", *command)
    assert done.returncode == 0, done.stderr
    script = json.loads(done.stdout)["script"]
    assert script["step_s"] == pytest.approx(own_s, rel=0.03)
    assert script["samples_per_s"] == pytest.approx(8 / own_s, rel=0.03)
    assert script["wait_share"] < 0.03
