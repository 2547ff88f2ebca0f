"""What training promises on a real GPU: no waiting between log points, honest idle time, real rescues."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch
from torch import nn

from gpudoc.train import precision
from gpudoc.train.meters import Meter
from gpudoc.train.step import Micro, Parts, Stepper
from gpudoc.workload.build import Step
from tests.train.support import environment, metrics, summary, write_workload
from tests.train.test_rescue import write as write_hungry

pytestmark = pytest.mark.gpu
GPU = torch.device("cuda", 0)


def stepper(name, optimizer="AdamW"):
    model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 1)).to(GPU)
    options = {"fused": True} if optimizer == "AdamW" else {}
    return Stepper(
        Parts(
            model=model,
            forward=model,
            optimizer=getattr(torch.optim, optimizer)(model.parameters(), lr=1e-3, **options),
            step=Step(loss=nn.MSELoss(), name="t"),
            device=GPU,
            precision=precision.Precision(name, "t"),
        )
    )


def batch(bad=False):
    x = torch.randn(32, 64)
    if bad:
        x[3, 4] = float("inf")
    return [x.pin_memory(), x.sum(1, keepdim=True).pin_memory()]


def train(folder, *arguments):
    line = [sys.executable, "-m", "gpudoc", "train", *map(str, arguments)]
    return subprocess.run(line, cwd=folder, env=environment(), capture_output=True, text=True, timeout=500)


@pytest.mark.parametrize("name", ["fp32", "bf16"])
def test_fifty_steps_never_wait_for_the_device(name):
    found = stepper(name)
    found.meter = Meter(GPU)
    batches = [batch() for _ in range(50)]
    found.run([Micro(batches[0], 1.0)])
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for one in batches:
            found.meter.wait(0.0)
            found.run([Micro(one, 1.0)])
            found.meter.step_done()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert len(found.take_losses()) == 51


@pytest.mark.parametrize("name", ["fp32", "bf16", "fp16"])
def test_a_step_that_is_not_finite_changes_nothing_and_is_counted(name):
    found = stepper(name)
    found.run([Micro(batch(), 1.0)])
    before = [p.detach().clone() for p in found.parameters]
    skipped = found.num_skipped()
    found.run([Micro(batch(bad=True), 1.0)])
    assert found.num_skipped() == skipped + 1
    assert all(torch.equal(a, b) for a, b in zip(before, found.parameters, strict=True))


def test_an_optimizer_without_a_fused_form_skips_too_and_says_that_it_waits():
    found = stepper("fp32", "RMSprop")
    assert found.syncs_every_step
    found.run([Micro(batch(bad=True), 1.0)])
    assert found.num_skipped() == 1


def test_fp16_finds_its_scale_and_learns():
    found = stepper("fp16")
    torch.manual_seed(0)
    for _ in range(200):
        found.run([Micro(batch(), 1.0)])
    losses = found.take_losses()
    assert sum(losses[-10:]) < 0.5 * sum(losses[20:30])
    assert found.scale() > 1


def test_waiting_for_data_is_an_idle_device(tmp_path):
    """2 ms a sample by a planted sleep, 16 samples a step: nearly all of the time, whatever the host did meanwhile."""
    write_workload(tmp_path, data={"sleep": 0.002}, global_batch=16, log_every=6)
    done = train(tmp_path, "--model", "cfg.yaml", "--profile", "off", "--device", "cuda", "--no-preflight")
    assert done.returncode == 0, done.stderr
    row = metrics(tmp_path / "runs/cfg")[-1]
    wall = sum(row["seconds"].values())
    assert row["seconds"]["data_wait"] / wall == pytest.approx(6 * 16 * 0.002 / wall, abs=0.03)


def test_a_resumed_run_is_the_uninterrupted_one_bit_for_bit(tmp_path):
    write_workload(tmp_path, model={"dropout": 0.3, "norm": True}, data={"draw": "torch"}, deterministic=True)
    line = ("--model", "cfg.yaml", "--profile", "off", "--device", "cuda", "--prove-resume", "--no-preflight", "--json")
    done = train(tmp_path, *line)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["exact"]


def test_running_out_of_memory_is_rescued_and_equals_the_planned_switch(tmp_path):
    write_hungry(tmp_path, 400)
    line = ("--model", "cfg.yaml", "--no-preflight", "--steps", 4, "--device", "cuda", "--profile", "off")
    done = train(tmp_path, *line, "--memory-limit", "6GiB", "--run-dir", "rescued")
    assert done.returncode == 0, done.stderr
    rescues = summary(tmp_path / "rescued")["rescues"]
    assert rescues, "6 GiB should not hold 32 samples of 400 MiB"
    small = rescues[-1]["rescue"]["to_batch"]
    planned = train(tmp_path, *line, "--batch-size", small, "--run-dir", "planned")
    assert planned.returncode == 0, planned.stderr
    manifests = [
        json.loads((tmp_path / run / "checkpoints/step-4/manifest.json").read_text())["files"]
        for run in ("rescued", "planned")
    ]
    assert manifests[0]["model.safetensors"] == manifests[1]["model.safetensors"]
