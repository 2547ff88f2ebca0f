"""--prove-resume says yes only to what is exact, and names the reason when it is not."""

from __future__ import annotations

import json
import sys

import pytest

from tests.train.support import train, train_here, write_workload


def test_a_workload_that_draws_from_the_global_generators_is_exact(tmp_path, monkeypatch, capfd):
    write_workload(tmp_path, model={"dropout": 0.2, "norm": True}, data={"draw": "python torch"})
    line = ("--model", "cfg.yaml", "--profile", "off", "--no-preflight", "--prove-resume", "--json")
    monkeypatch.setattr(sys, "argv", ["gpudoc", "train", "--device", "cpu", *line])
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert train_here(tmp_path, *line) == 0
    document = json.loads(capfd.readouterr().out)
    assert document["schema"] == "gpudoc.prove.v1"
    assert document["exact"] is True
    assert not list(tmp_path.glob("runs/*")), "a proof leaves nothing behind"


@pytest.mark.slow
def test_state_hidden_in_the_data_set_is_found_and_explained(tmp_path):
    write_workload(tmp_path)
    module = tmp_path / "tiny_workload.py"
    module.write_text(
        module.read_text().replace(
            "        x = self.inputs[index]\n",
            "        self.own = getattr(self, 'own', None) or numpy.random.default_rng(0)\n"
            "        x = self.inputs[index] + float(self.own.random())\n",
        )
    )
    done = train(tmp_path, "--model", "cfg.yaml", "--profile", "off", "--no-preflight", "--prove-resume", "--plain")
    assert done.returncode == 1, done.stderr
    assert "not exact: the loss of step 6" in done.stdout
    assert "state outside the checkpoint" in done.stdout


@pytest.mark.slow
def test_a_run_that_fails_by_itself_is_no_verdict(tmp_path):
    write_workload(tmp_path, data={"raise_at": 3})
    done = train(tmp_path, "--model", "cfg.yaml", "--profile", "off", "--no-preflight", "--prove-resume")
    assert done.returncode == 1
    assert "does not work by itself" in done.stderr
    assert "sample 3 is broken" in done.stderr
