"""What the loop promises between steps: the schedule, honest figures, a trace, and little time of its own."""

from __future__ import annotations

import json
import pathlib
import sys
from collections import Counter

import pytest

import gpudoc
from gpudoc.train.events import Progressed
from gpudoc.train.loop.loop import Loop
from gpudoc.train.request import TrainRequest
from gpudoc.train.run import run
from gpudoc.train.step import schedule
from gpudoc.workload.config import Schedule
from tests.train.support import forget_limit, metrics, train_here, write_workload

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


def calls_a_step(config, first, last):
    """(calls of Python functions, calls of C functions by name) that gpudoc's own code makes between two log points."""
    own = str(pathlib.Path(gpudoc.__file__).parent)
    python, builtin = Counter(), Counter()

    def note(frame, event, argument):
        if event == "call" and frame.f_code.co_filename.startswith(own):
            python[frame.f_code.co_qualname if hasattr(frame.f_code, "co_qualname") else frame.f_code.co_name] += 1
        elif event == "c_call" and frame.f_code.co_filename.startswith(own):
            builtin[argument.__name__] += 1

    request = TrainRequest(
        model=str(config), profile="off", device="cpu", preflight=False, run_dir=config.parent / "run"
    )
    try:
        for event in run(request):
            if isinstance(event, Progressed) and event.step in (first, last):
                sys.setprofile(note if event.step == first else None)
    finally:
        sys.setprofile(None)
        forget_limit()
    steps = last - first
    return sum(python.values()) / steps, {name: count / steps for name, count in builtin.items()}


def test_a_plain_step_calls_little_of_its_own_and_copies_no_state_of_generators(tmp_path):
    """Counted, since a time says nothing on a busy machine: each call of Python's takes 0.05 to 0.1 µs."""
    config = write_workload(tmp_path, data={"count": 600}, log_every=10)
    python, builtin = calls_a_step(config, 10, 50)
    assert {name: builtin.get(name, 0) for name in ("get_state", "equal", "zero_", "getstate")} == dict.fromkeys(
        ("get_state", "equal", "zero_", "getstate"), 0
    )
    assert python <= 55
    assert sum(builtin.values()) <= 55
