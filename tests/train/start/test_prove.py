"""--prove-resume says yes only to what is exact, and names the reason when it is not."""

from __future__ import annotations

import json
import sys

import pytest

from tests.train.support import train_here, write_workload


@pytest.fixture
def prove(tmp_path, monkeypatch):
    """`gpudoc train --prove-resume` in this process; the runs that it compares are processes of their own."""

    def prove(*arguments):
        line = ("--model", "cfg.yaml", "--profile", "off", "--no-preflight", "--prove-resume", *arguments)
        monkeypatch.setattr(sys, "argv", ["gpudoc", "train", "--device", "cpu", *line])
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
        return train_here(tmp_path, *line)

    return prove


def test_a_workload_that_draws_from_the_global_generators_is_exact(tmp_path, prove, capfd):
    write_workload(tmp_path, model={"dropout": 0.2, "norm": True}, data={"draw": "python torch"})
    assert prove("--json") == 0
    document = json.loads(capfd.readouterr().out)
    assert document["schema"] == "gpudoc.prove.v1"
    assert document["exact"] is True
    assert not list(tmp_path.glob("runs/*")), "a proof leaves nothing behind"


@pytest.mark.slow
def test_state_hidden_in_the_data_set_is_found_and_explained(tmp_path, prove, capfd):
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
    assert "does not work by itself" in said
    assert "sample 3 is broken" in said
