"""How a run ended: status, exit code, and the command that goes on only when there is something to go on with."""

from __future__ import annotations

import json

from tests.train.support import summary, train_here, write_workload

LINE = ("--model", "cfg.yaml", "--profile", "off", "--no-preflight")


def test_a_finished_run_needs_no_command(tmp_path):
    write_workload(tmp_path)
    assert train_here(tmp_path, *LINE) == 0
    found = summary(tmp_path / "runs/cfg")
    assert (found["status"], found["exit_code"], found["go_on"]) == ("finished", 0, None)
    assert found["first_loss"] > found["final_loss"]


def test_a_failure_before_the_first_checkpoint_offers_no_resume(tmp_path, capsys):
    write_workload(tmp_path, model={"width": 5})
    assert train_here(tmp_path, *LINE, "--json") == 2
    error = json.loads(capsys.readouterr().out)
    assert error["schema"] == "gpudoc.error.v1"
    assert "--resume" not in error["hint"]
    assert summary(tmp_path / "runs/cfg")["status"] == "failed"


def test_after_such_a_failure_the_same_directory_is_begun_anew(tmp_path):
    write_workload(tmp_path, model={"width": 5})
    assert train_here(tmp_path, *LINE) == 2
    write_workload(tmp_path)
    assert train_here(tmp_path, *LINE) == 0
    assert [entry.name for entry in (tmp_path / "runs").iterdir()] == ["cfg"]


def test_a_command_that_is_done_says_so_and_changes_nothing(tmp_path, capsys):
    write_workload(tmp_path)
    assert train_here(tmp_path, *LINE, "--run-dir", "r") == 0
    before = (tmp_path / "r/metrics.jsonl").read_text()
    capsys.readouterr()
    assert train_here(tmp_path, *LINE, "--run-dir", "r") == 0
    assert "has finished all its steps" in capsys.readouterr().out
    assert (tmp_path / "r/metrics.jsonl").read_text() == before
