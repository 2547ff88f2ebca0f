"""What the loop promises between steps: the schedule, honest figures, a trace, and little time of its own."""

from __future__ import annotations

import json

import pytest

from gpudoc.train.step import schedule
from gpudoc.train.step.loop import Loop
from gpudoc.workload.config import Schedule
from tests.train.support import metrics, train, train_here, write_workload

LINE = ("--model", "cfg.yaml", "--profile", "off", "--no-preflight")


def test_the_learning_rate_follows_the_schedule(tmp_path):
    write_workload(tmp_path, schedule={"name": "cosine", "warmup_steps": 3}, log_every=1)
    assert train_here(tmp_path, *LINE) == 0
    expected = [0.01 * schedule.factor(Schedule(name="cosine", warmup_steps=3), step, 8) for step in range(8)]
    assert [row["lr"] for row in metrics(tmp_path / "runs/cfg")] == pytest.approx(expected)


def test_a_planted_sleep_in_the_data_set_appears_in_data_wait(tmp_path):
    write_workload(tmp_path, data={"sleep": 0.004}, log_every=4)
    assert train_here(tmp_path, *LINE) == 0
    row = metrics(tmp_path / "runs/cfg")[-1]
    slept = 4 * 12 * 0.004
    # at least what was slept; more only as far as the machine is slow to wake up
    assert row["seconds"]["data_wait"] >= slept
    assert row["seconds"]["compute"] < row["seconds"]["data_wait"]


def test_the_phases_add_up_to_the_time_that_passed(tmp_path):
    write_workload(tmp_path, model={"sleep": 0.01}, log_every=4)
    assert train_here(tmp_path, *LINE) == 0
    for row in metrics(tmp_path / "runs/cfg"):
        assert sum(row["seconds"].values()) * row["samples_per_s"] == pytest.approx(48, rel=1e-6)
        assert row["seconds"]["compute"] >= 0.04


def test_a_trace_holds_the_steps_that_were_asked_for(tmp_path):
    write_workload(tmp_path)
    assert train_here(tmp_path, *LINE, "--trace", 2) == 0
    events = json.loads((tmp_path / "runs/cfg/trace.json").read_text())["traceEvents"]
    assert sum("Optimizer.step" in str(event.get("name")) for event in events) == 2


def test_epochs_differ_in_their_order(tmp_path):
    write_workload(tmp_path, log_every=1, epochs=2)
    assert train_here(tmp_path, *LINE, "--set", "lr=1e-12") == 0
    losses = [row["loss"] for row in metrics(tmp_path / "runs/cfg")]
    assert losses[:8] != losses[8:]
    assert sum(losses[:8]) == pytest.approx(sum(losses[8:]), rel=1e-4)


@pytest.mark.parametrize("persistent", [True, False])
def test_workers_that_do_not_persist_begin_anew_with_each_epoch(tmp_path, persistent):
    """Each worker process writes its number; three epochs make one or three of them."""
    write_workload(tmp_path, epochs=3, log_every=1)
    module = tmp_path / "tiny_workload.py"
    spy = "        import os, pathlib; pathlib.Path('pids').mkdir(exist_ok=True)\n"
    spy += "        pathlib.Path('pids', str(os.getpid())).touch()\n        x = self.inputs[index]\n"
    module.write_text(module.read_text().replace("        x = self.inputs[index]\n", spy))
    line = (*LINE, "--num-workers", 1, "--set", f"persistent_workers={persistent}")
    done = train(tmp_path, *line)
    assert done.returncode == 0, done.stderr
    workers = len(list((tmp_path / "pids").iterdir()))
    # the parent itself reads one sample for its shape
    assert workers == (2 if persistent else 4)


def test_gradients_are_gone_when_the_next_samples_are_read(tmp_path, monkeypatch):
    """On a CPU what lies among the samples' memory makes the heap grow around it."""
    write_workload(tmp_path, log_every=1)
    seen, real = [], Loop.fetch

    def looked(self):
        seen.append([p.grad for p in self._job.stepper.parameters])
        return real(self)

    monkeypatch.setattr(Loop, "fetch", looked)
    assert train_here(tmp_path, *LINE) == 0
    assert len(seen) > 3
    assert all(gradient is None for gradients in seen for gradient in gradients)
    assert all(row["grad_norm"] > 0 for row in metrics(tmp_path / "runs/cfg") if "grad_norm" in row)
