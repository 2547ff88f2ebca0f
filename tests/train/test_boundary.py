"""Between steps: evaluation, best and last checkpoint, early stop, and a disk that is full."""

from __future__ import annotations

import json

from gpudoc.train import checkpoint, writer
from tests.train.support import metrics, summary, train_here, write_workload

LINE = ("--model", "cfg.yaml", "--profile", "off", "--no-preflight")


def steps_in(run):
    return [step for step, _ in checkpoint.found_in(run / "checkpoints")]


def test_the_best_stays_beside_the_last_ones(tmp_path):
    """The learning rate is so high that later evaluations are worse."""
    write_workload(tmp_path, evaluated=True, eval_every=2, checkpoint_every=2, keep=1, epochs=2)
    assert train_here(tmp_path, *LINE, "--set", "lr=0.5") == 0
    run = tmp_path / "runs/cfg"
    best = summary(run)["best"]["step"]
    evaluations = {row["step"]: row["eval"]["loss"] for row in metrics(run) if "eval" in row}
    assert evaluations[best] == min(evaluations.values())
    assert set(steps_in(run)) == {16, best}


def test_early_stop_ends_after_evaluations_without_gain(tmp_path, capsys):
    write_workload(tmp_path, evaluated=True, eval_every=1, early_stop=3, epochs=50)
    assert train_here(tmp_path, *LINE, "--set", "lr=5") == 0
    found = summary(tmp_path / "runs/cfg")
    assert found["steps"] < 400
    assert found["steps"] - found["best"]["step"] == 3
    assert "early stop after step" in capsys.readouterr().err


def test_evaluation_changes_nothing_in_training(tmp_path):
    write_workload(tmp_path, evaluated=True, model={"dropout": 0.3, "norm": True}, data={"draw": "torch"}, log_every=1)
    assert train_here(tmp_path, *LINE, "--run-dir", "often", "--set", "eval_every=1") == 0
    assert train_here(tmp_path, *LINE, "--run-dir", "once") == 0
    losses = [[row["loss"] for row in metrics(tmp_path / run) if "loss" in row] for run in ("often", "once")]
    assert losses[0] == losses[1]
    manifests = [
        json.loads((tmp_path / run / "checkpoints/step-8/manifest.json").read_text())["files"]
        for run in ("often", "once")
    ]
    assert manifests[0]["model.safetensors"] == manifests[1]["model.safetensors"]


def test_a_full_disk_in_the_middle_is_said_and_the_run_goes_on(tmp_path, capsys, monkeypatch):
    write_workload(tmp_path, checkpoint_every=2)
    real = checkpoint.write

    def full_at_first(folder, content, **options):
        if content.step <= 2:
            raise OSError(28, "No space left on device")
        return real(folder, content, **options)

    monkeypatch.setattr(writer, "write", full_at_first)
    assert train_here(tmp_path, *LINE) == 0
    assert "could not be written: No space left on device; training goes on" in capsys.readouterr().err
    assert steps_in(tmp_path / "runs/cfg")[0] == 8


def test_a_full_disk_at_the_end_is_a_failure_that_names_the_newest_whole_one(tmp_path, capsys, monkeypatch):
    write_workload(tmp_path, checkpoint_every=2)
    real = checkpoint.write

    def full_later(folder, content, **options):
        if content.step > 2:
            raise OSError(28, "No space left on device")
        return real(folder, content, **options)

    monkeypatch.setattr(writer, "write", full_later)
    assert train_here(tmp_path, *LINE) == 1
    told = capsys.readouterr().err
    assert "No space left on device; the newest whole one is step-2" in told
    assert checkpoint.newest_good(tmp_path / "runs/cfg/checkpoints")[0].name == "step-2"
