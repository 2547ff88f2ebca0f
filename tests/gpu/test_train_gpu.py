"""What training promises on a GPU: no waiting between log points, honest idle time, real rescues."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch
from torch import nn

from gpudoc.train.meter.meters import Meter
from gpudoc.train.state.capture import RunProgress, capture
from gpudoc.train.state.staging import Staging
from gpudoc.train.step import precision
from gpudoc.train.step.step import Micro, Parts, Stepper
from gpudoc.workload.build import Step
from tests.standin.gpus import PATIENCE_S, real_gpu
from tests.train.loop.test_rescue import write as write_hungry
from tests.train.support import environment, metrics, summary, write_workload

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
    return subprocess.run(line, cwd=folder, env=environment(), capture_output=True, text=True, timeout=PATIENCE_S)


@pytest.mark.parametrize("name", ["fp32", "bf16"])
def test_fifty_steps_never_wait_for_the_device(name):
    found = stepper(name)
    found.meter = Meter(GPU)
    found.meter.look_for_gaps()
    batches = [batch() for _ in range(50)]
    found.run([Micro(batches[0], 1.0)])
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for one in batches:
            found.meter.wait(0.0)
            found.run([Micro(one, 1.0)])
            # as the loop does, so that a step in fifty begins after a pause
            found.meter.compute += 0.001
            found.meter.step_done()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert len(found.losses.take()) == 51


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
    losses = found.losses.take()
    assert sum(losses[-10:]) < 0.5 * sum(losses[20:30])
    assert found.scale() > 1


@real_gpu("there the host computes in the GPU's place, which is time that it does not wait")
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


@real_gpu("a CPU would compute with gigabytes for minutes")
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


def state_at(stepper):
    """The state on the host now, copied while nothing else happens."""
    torch.cuda.synchronize()
    weights = {name: tensor.detach().to("cpu", copy=True) for name, tensor in stepper.parts.model.state_dict().items()}
    rows = stepper.parts.optimizer.state_dict()["state"]
    return weights, {f"{n}.{key}": value.to("cpu", copy=True) for n, row in rows.items() for key, value in row.items()}


def large_stepper():
    """1.5 GiB of weights and state: the copy takes far longer than the host needs to queue the next steps."""
    model = nn.Sequential(nn.Linear(64, 8192), nn.BatchNorm1d(8192), nn.Linear(8192, 8192), nn.Linear(8192, 8192))
    model = nn.Sequential(model, nn.Linear(8192, 1)).to(GPU)
    return Stepper(
        Parts(
            model=model,
            forward=model,
            optimizer=torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True),
            step=Step(loss=nn.MSELoss(), name="t"),
            device=GPU,
            precision=precision.Precision("fp32", "t"),
        )
    )


def assert_holds(content, weights, rows):
    assert all(torch.equal(content.model[name], weights[name]) for name in weights)
    saved = {f"{n}.{key}": value for n, row in content.optimizer["state"].items() for key, value in row.items()}
    assert saved.keys() == rows.keys()
    assert all(torch.equal(saved[name], rows[name]) for name in rows)


@real_gpu("a CPU would multiply matrices of 8192 x 8192 for minutes")
def test_a_checkpoint_holds_the_state_of_its_step_though_steps_go_on_at_once():
    """Weights, optimizer and running statistics as they were, copied beside the following steps."""
    found, staging = large_stepper(), Staging(GPU)
    for _ in range(2):
        found.run([Micro(batch(), 1.0)])
    weights, rows = state_at(found)
    content = capture(found, RunProgress(step=2), {}, {}, staging)
    for _ in range(3):
        found.run([Micro(batch(), 1.0)])
    content.copying.wait()
    assert_holds(content, weights, rows)
    later, _ = state_at(found)
    assert not torch.equal(later["1.weight"], weights["1.weight"])
    assert not torch.equal(later["0.1.running_mean"], weights["0.1.running_mean"])


def test_the_next_update_waits_for_the_copy_and_the_host_does_not():
    found, staging = large_stepper(), Staging(GPU)
    found.run([Micro(batch(), 1.0)])
    capture(found, RunProgress(step=1), {}, {}, staging).copying.wait()
    torch.cuda.synchronize()
    one = batch()
    torch.cuda.set_sync_debug_mode("error")
    try:
        content = capture(found, RunProgress(step=1), {}, {}, staging)
        assert found.copying is content.copying
        found.run([Micro(one, 1.0)])
        assert found.copying is None
    finally:
        torch.cuda.set_sync_debug_mode("default")
    content.copying.wait()


def test_pinned_memory_is_kept_between_checkpoints():
    found, staging = stepper("fp32"), Staging(GPU)
    found.run([Micro(batch(), 1.0)])
    places = []
    for number in range(2):
        content = capture(found, RunProgress(step=number), {}, {}, staging)
        content.copying.wait()
        assert all(tensor.is_pinned() for tensor in content.model.values())
        places.append([tensor.data_ptr() for tensor in content.model.values()])
    assert places[0] == places[1]
    held = sum(p.nbytes for p in found.parameters)
    assert staging.pinned_bytes >= 3 * held


def test_what_may_not_be_pinned_is_copied_all_the_same(monkeypatch):
    monkeypatch.setattr("gpudoc.train.state.staging.default_limit_bytes", lambda: 4096)
    found, staging = stepper("fp32"), Staging(GPU)
    found.run([Micro(batch(), 1.0)])
    weights, rows = state_at(found)
    content = capture(found, RunProgress(step=1), {}, {}, staging)
    if content.copying is not None:
        content.copying.wait()
    assert_holds(content, weights, rows)
    assert staging.pinned_bytes <= 4096
    assert not all(tensor.is_pinned() for tensor in content.model.values())
