"""--prove-resume says yes only to what is exact, and names the reason when it is not."""

from __future__ import annotations

import json
import sys

import pytest

from gpudoc.train.start import prove as room
from tests.train.support import as_in_a_process, train_here, write_workload


@pytest.fixture
def prove(tmp_path, monkeypatch):
    """`gpudoc train --prove-resume` in this process; the runs that it compares are processes of their own."""

    def prove(*arguments):
        line = ("--model", "cfg.yaml", "--profile", "off", "--no-preflight", "--prove-resume", *arguments)
        monkeypatch.setattr(sys, "argv", ["gpudoc", "train", "--device", "cpu", *line])
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
        return train_here(tmp_path, *line)

    return prove


@pytest.fixture
def in_this_process(tmp_path, monkeypatch, capfd):
    """The runs to compare are no processes; the one to be killed ends by itself, at the step of its checkpoint."""

    def one(line):
        with as_in_a_process():
            assert train_here(tmp_path, *line) == 0
        # what is said from here on is the verdict
        capfd.readouterr()

    def one_that_ends_early(line, run):
        one([*line, "--steps", str(room.KILL_AFTER)])
        (run / "summary.json").unlink()

    monkeypatch.setattr(room, "_run", one)
    monkeypatch.setattr(room, "_run_and_kill", one_that_ends_early)


@pytest.mark.parametrize("how", ["in_this_process", pytest.param("killed", marks=pytest.mark.slow)])
def test_a_workload_that_draws_from_the_global_generators_is_exact(request, tmp_path, prove, capfd, how):
    if how == "in_this_process":
        request.getfixturevalue(how)
    write_workload(tmp_path, model={"dropout": 0.2, "norm": True}, data={"draw": "python torch"})
    assert prove("--json") == 0
    document = json.loads(capfd.readouterr().out)
    assert document["schema"] == "gpudoc.prove.v1"
    assert document["exact"] is True
    assert not list(tmp_path.glob("runs/*")), "a proof leaves nothing behind"


def test_state_hidden_in_the_data_set_is_found_and_explained(tmp_path, prove, in_this_process, capfd):
    write_workload(tmp_path)
    module = tmp_path / "tiny_workload.py"
    module.write_text(
        module.read_text().replace(
            "        x = self.inputs[index]\n",
            "        self.own = getattr(self, 'own', None) or numpy.random.default_rng(0)\n"
            "        x = self.inputs[index] + float(self.own.random())\n",
        )
    )
    assert prove("--plain") == 1
    said = capfd.readouterr().out
    assert "not exact: the loss of step 6" in said
    assert "state outside the checkpoint" in said


@pytest.mark.slow
def test_a_run_that_fails_by_itself_is_no_verdict(tmp_path, prove, capfd):
    write_workload(tmp_path, data={"raise_at": 3})
    assert prove() == 1
    said = capfd.readouterr().err
    assert "the run fails even without being killed" in said
    assert "sample 3 is broken" in said
