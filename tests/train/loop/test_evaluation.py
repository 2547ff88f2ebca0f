"""What an evaluation decides: the best so far, and an early stop."""

from __future__ import annotations

import json

from tests.train.support import metrics, summary, train_here, write_workload

LINE = ("--model", "cfg.yaml", "--profile", "off", "--no-preflight")


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


def test_an_evaluation_that_is_not_finite_is_never_the_best_and_breaks_nothing(tmp_path, capsys):
    config = write_workload(tmp_path, evaluated=True, eval_every=2, early_stop=2, epochs=2)
    written = json.loads(config.read_text())
    written["data"]["eval"]["args"]["bad_from"] = 20
    config.write_text(json.dumps(written))
    assert train_here(tmp_path, *LINE, "--plain", "--html", "page.html") == 0
    out, err = capsys.readouterr()
    assert "eval loss that is not finite after step 4" in out
    assert "early stop after step 4: 2 evaluations without improvement; none was finite" in err
    assert "(best)" not in err
    found = summary(tmp_path / "runs/cfg")
    assert found["best"] is None
    assert found["evaluation"] == {"step": 4, "loss": None}
    page = (tmp_path / "page.html").read_text("utf-8")
    assert "loss on the eval set" in page
    assert "not finite" in page
