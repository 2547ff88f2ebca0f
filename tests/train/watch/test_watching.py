"""Planted hangs and slow ranks in real runs: named with rank, line and collective; healthy runs are silent."""

from __future__ import annotations

import json
import os
import signal

import pytest

from gpudoc.train.watch import watch
from tests.train.start.faulty import watched, write_faulty
from tests.train.support import metrics, summary, train_here
from tests.waiting import wait_until


@pytest.fixture
def closely(monkeypatch):
    """One process, in which the thread looks often."""
    monkeypatch.setattr("gpudoc.train.watch.watching.LOOK_S", 0.05)


def run(folder, *arguments):
    return train_here(
        folder, "--model", "cfg.yaml", "--profile", "off", "--no-preflight", "--steps", "30", "--plain", *arguments
    )


def test_alone_a_data_set_that_hangs_is_named_by_its_line_and_the_run_can_go_on(tmp_path, closely, monkeypatch, capfd):
    write_faulty(tmp_path, "data:0", net={"sleep": 0.02})
    # a machine that does much else may keep a process from running for a second
    monkeypatch.setattr(watch, "FLOOR_S", 3.0)
    # so that it may also be kept from looking before the run hangs
    monkeypatch.setattr(watch, "FIRST_S", 10.0)
    monkeypatch.setattr(watch, "END_TIMES", 1.0)
    assert run(tmp_path, "--on-hang", "end") == 1
    said = capfd.readouterr().err
    lines = (tmp_path / "faulty.py").read_text().splitlines()
    line = next(number for number, text in enumerate(lines, start=1) if "while held" in text)
    assert f"the process reads its samples at faulty.py:{line} in __getitem__()" in said
    assert "--on-hang end: nothing has moved for" in said
    assert "Traceback" not in said
    told = summary(tmp_path / "runs" / "cfg")
    assert told["status"] == "failed"
    assert told["hangs"][-1]["hang"]["at"] == f"faulty.py:{line} in __getitem__()"
    # its state was saved at the last whole step, and from there it goes on
    assert told["steps"] > 0
    (tmp_path / "go").touch()
    assert run(tmp_path, "--resume", "runs/cfg") == 0
    again = summary(tmp_path / "runs" / "cfg")
    assert (again["steps"], again["resumed_from"], again["hangs"]) == (30, f"step-{told['steps']}", [])


def test_alone_a_run_that_is_well_says_nothing(tmp_path, closely, capfd):
    write_faulty(tmp_path, "", evaluated=True, eval_every=10, net={"sleep": 0.01})
    assert run(tmp_path) == 0
    assert "moved" not in capfd.readouterr().err
    assert summary(tmp_path / "runs" / "cfg")["hangs"] == []


def said(folder):
    return (folder / "said").read_text()


def start(folder, fault, *arguments, ranks=2, floor_s=3.0, **more):
    write_faulty(folder, fault, **more)
    return watched(folder, "--gpus", ranks, "--steps", "40", "--json", *arguments, floor_s=floor_s)


@pytest.mark.slow
def test_a_rank_that_does_not_come_is_named_and_waited_for(tmp_path):
    job = start(tmp_path, "data:1", net={"sleep": 0.03})
    try:
        wait_until(lambda: "rank 1 of 2 reads its samples at faulty.py:" in said(tmp_path))
        told = said(tmp_path).partition("rank 1 of 2 reads its samples at faulty.py:")[2]
        assert "in Data.__getitem__(); rank 0 waits for it in collective" in told.splitlines()[0]
        assert "(sum on the host)" in told.splitlines()[0]
        assert "--on-hang end would end the run" in said(tmp_path)
        (tmp_path / "go").touch()
        document = json.loads(job.communicate(timeout=200)[0])
    finally:
        job.kill()
    assert job.returncode == 0
    assert "moving again after" in said(tmp_path)
    assert document["status"] == "finished"
    assert [1] in [row["hang"]["ranks"] for row in document["hangs"]]
    assert [row for row in metrics(tmp_path / "runs" / "cfg") if "hang" in row] == document["hangs"]
    assert len(document["ranks"]["step_s"]) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ranks", "fault", "says"),
    [
        (4, "data:2", "rank 2 of 4 reads its samples at faulty.py:"),
        (2, "busy:1", "rank 1 of 2 computes the step at faulty.py:"),
        (2, "stopped:1", "rank 1 of 2 is stopped by a signal or a debugger (kill -CONT"),
    ],
)
def test_ranks_of_which_one_hangs_end_where_that_is_asked_for(tmp_path, ranks, fault, says):
    job = start(tmp_path, fault, "--on-hang", "end", "--set", "checkpoint_every=5", ranks=ranks)
    try:
        out, _ = job.communicate(timeout=280)
    finally:
        job.kill()
    assert job.returncode == 1, said(tmp_path)
    error = json.loads(out)
    assert error["schema"] == "gpudoc.error.v1"
    assert says in error["message"]
    assert "--resume" in error["hint"]
    # the stack of each
    assert all(f"rank {rank} (pid " in said(tmp_path) for rank in range(ranks))
    # what was saved is whole, and any number of ranks goes on with it
    (tmp_path / "go").touch()
    assert train_here(tmp_path, "--model", "cfg.yaml", "--no-preflight", "--steps", "40", "--resume", "runs/cfg") == 0
    assert summary(tmp_path / "runs" / "cfg")["resumed_from"] is not None


@pytest.mark.slow
def test_a_rank_that_takes_half_as_long_again_is_named_with_its_host(tmp_path):
    job = start(tmp_path, "slow:2", ranks=3, net={"sleep": 0.2, "slower": 1.5})
    out, _ = job.communicate(timeout=280)
    assert job.returncode == 0, said(tmp_path)
    document = json.loads(out)
    slow = document["ranks"]["slow"]
    assert (slow["rank"], slow["where"], slow["host"]) == (2, "computing", os.uname().nodename)
    assert said(tmp_path).count("! rank 2 is ") == 1
    assert document["advice"][0]["say"].startswith("rank 2 is ")


@pytest.mark.slow
def test_several_ranks_that_are_well_are_not_reported(tmp_path):
    """A first step, and an evaluation, that take longer than what is waited for."""
    job = start(tmp_path, "first,evaluation:1", "--set", "eval_every=30", evaluated=True, floor_s=15.0)
    out, _ = job.communicate(timeout=280)
    assert job.returncode == 0
    assert json.loads(out)["hangs"] == []
    assert "moved" not in said(tmp_path)


@pytest.mark.slow
def test_a_stopped_rank_goes_on_when_it_is_let_go(tmp_path):
    job = start(tmp_path, "stopped:1")
    try:
        wait_until(lambda: "kill -CONT " in said(tmp_path))
        pid = int(said(tmp_path).partition("kill -CONT ")[2].split()[0])
        os.kill(pid, signal.SIGCONT)
        out, _ = job.communicate(timeout=200)
    finally:
        job.kill()
    assert [1] in [row["hang"]["ranks"] for row in json.loads(out)["hangs"]]
