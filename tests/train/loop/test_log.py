"""What a logged row says of the time, and of gradients that are not finite."""

from __future__ import annotations

import pytest

from tests.train.support import metrics, train_here, write_workload

LINE = ("--model", "cfg.yaml", "--profile", "off", "--no-preflight")


def test_a_planted_sleep_in_the_data_set_appears_in_data_wait(tmp_path):
    write_workload(tmp_path, data={"sleep": 0.004}, log_every=4)
    assert train_here(tmp_path, *LINE) == 0
    row = metrics(tmp_path / "runs/cfg")[-1]
    slept = 4 * 12 * 0.004
    # at least what was slept; more only as far as the machine is slow to wake up
    assert row["seconds"]["data_wait"] >= slept
    # and nowhere else: the parts are as long as the whole
    assert sum(row["seconds"].values()) * row["samples_per_s"] == pytest.approx(48, rel=1e-6)


def test_the_phases_add_up_to_the_time_that_passed(tmp_path):
    write_workload(tmp_path, model={"sleep": 0.01}, log_every=4)
    assert train_here(tmp_path, *LINE) == 0
    for row in metrics(tmp_path / "runs/cfg"):
        assert sum(row["seconds"].values()) * row["samples_per_s"] == pytest.approx(48, rel=1e-6)
        assert row["seconds"]["compute"] >= 0.04


def test_a_run_in_which_no_gradient_was_finite_fails_and_says_since_when(tmp_path, capsys):
    write_workload(tmp_path, data={"bad_from": 0}, log_every=2)
    assert train_here(tmp_path, *LINE) == 1
    said = capsys.readouterr().err
    assert "the gradients are not finite from the first step on (step 8)" in said
    # it runs in fp32 already, and holds nothing to go on with
    assert "--precision fp32" not in said
    assert "--resume" not in said
    rows = metrics(tmp_path / "runs/cfg")
    assert [row["skipped"] for row in rows if "skipped" in row] == [2, 2, 2]
