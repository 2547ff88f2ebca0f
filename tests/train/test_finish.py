"""The end of a run: what is said, what is written, and the command that goes on."""

import json

from tests.train.support import summary, train_here, write_workload


def test_a_finished_run_needs_no_command_to_go_on(tmp_path, capsys):
    write_workload(tmp_path)
    assert train_here(tmp_path, "--model", "cfg.yaml", "--steps", "4", "--profile", "off", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["status"], found["exit_code"], found["go_on"]) == ("finished", 0, None)
    assert found == summary(tmp_path / "runs" / "cfg")


def test_a_failed_run_says_why_and_keeps_the_command_that_goes_on(tmp_path, capsys):
    write_workload(tmp_path, data={"bad_from": 0}, log_every=1)
    code = train_here(tmp_path, "--model", "cfg.yaml", "--steps", "30", "--profile", "off")
    assert code == 1
    found = summary(tmp_path / "runs" / "cfg")
    assert found["status"] == "failed"
    assert "not finite" in found["reason"]
    assert found["num_skipped"] == found["steps"]
    assert found["go_on"].startswith("gpudoc train ")
    assert "--resume" in found["go_on"]
    assert "not finite" in capsys.readouterr().err
