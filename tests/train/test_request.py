"""A request says how its run is continued."""

from __future__ import annotations

from gpudoc.train.request import TrainRequest, go_on


def test_go_on_repeats_the_line_with_the_run(tmp_path):
    request = TrainRequest(model="cfg.yaml", arguments=("--model", "cfg.yaml", "--run-dir", "a b", "--steps", "9"))
    assert go_on(request, tmp_path / "a b") == f"gpudoc train --model cfg.yaml --steps 9 --resume '{tmp_path}/a b'"


def test_a_run_of_the_built_in_workload_names_it(tmp_path):
    assert go_on(TrainRequest(), tmp_path) == f"gpudoc train --model quickstart --resume {tmp_path}"
