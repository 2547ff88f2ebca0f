"""What the loop promises between steps: the schedule, honest figures, a trace, and little time of its own."""

from __future__ import annotations

import json

import pytest

from gpudoc.train.step import schedule
from gpudoc.train.step.loop import Loop
from gpudoc.workload.config import Schedule
from tests.train.support import metrics, train_here, write_workload

LINE = ("--model", "cfg.yaml", "--profile", "off", "--no-preflight")


def test_the_learning_rate_follows_the_schedule(tmp_path):
    write_workload(tmp_path, schedule={"name": "cosine", "warmup_steps": 3}, log_every=1)
    assert train_here(tmp_path, *LINE) == 0
    expected = [0.01 * schedule.factor(Schedule(name="cosine", warmup_steps=3), step, 8) for step in range(8)]
    assert [row["lr"] for row in metrics(tmp_path / "runs/cfg")] == pytest.approx(expected)


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


def test_gradients_are_gone_when_the_next_samples_are_read(tmp_path, monkeypatch):
    """On a CPU what lies among the samples' memory makes the heap grow around it."""
    write_workload(tmp_path, log_every=1)
    seen, real = [], Loop.fetch

    def looked(self):
        seen.append([p.grad for p in self._sequence.stepper.parameters])
        return real(self)

    monkeypatch.setattr(Loop, "fetch", looked)
    assert train_here(tmp_path, *LINE) == 0
    assert len(seen) > 3
    assert all(gradient is None for gradients in seen for gradient in gradients)
    assert all(row["grad_norm"] > 0 for row in metrics(tmp_path / "runs/cfg") if "grad_norm" in row)
