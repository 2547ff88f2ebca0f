"""A resumed run is put together as it was: its losses and learning rates are those of a run without a break."""

from __future__ import annotations

from tests.train.support import metrics, summary, train_here, write_workload

LINE = ("--model", "cfg.yaml", "--profile", "off", "--no-preflight")


def test_a_resumed_run_goes_on_with_its_schedule_and_the_same_losses(tmp_path):
    write_workload(tmp_path, schedule={"name": "cosine", "warmup_steps": 2}, log_every=1, checkpoint_every=3, keep=9)
    assert train_here(tmp_path, *LINE, "--run-dir", "whole", "--steps", 8) == 0
    assert train_here(tmp_path, *LINE, "--run-dir", "parts", "--steps", 8) == 0
    manifest = tmp_path / "parts/checkpoints/step-8/manifest.json"
    manifest.write_text("{}")
    (tmp_path / "parts/summary.json").unlink()
    assert train_here(tmp_path, *LINE, "--run-dir", "parts", "--steps", 8) == 0
    # one that comes due while another is written waits until that one is done, a step or more
    resumed_from = summary(tmp_path / "parts")["resumed_from"]
    assert 3 <= int(resumed_from.removeprefix("step-")) < 8
    rows = [[(row["step"], row["lr"], row["loss"]) for row in metrics(tmp_path / run)] for run in ("whole", "parts")]
    assert rows[0] == rows[1]
