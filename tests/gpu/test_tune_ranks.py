"""Several GPUs under the real `gpudoc tune`: the search over all of them, what scaling names, nobody left waiting."""

import json
import os
import subprocess
import sys

import pytest
import torch

from tests.tune.planted import write_workload

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs"),
]


def tune(folder, *arguments, code=0):
    environment = {**os.environ, "XDG_DATA_HOME": str(folder / "data")}
    environment["PYTHONPATH"] = os.pathsep.join([os.getcwd(), environment.get("PYTHONPATH", "")])  # noqa: PTH109
    command = [sys.executable, "-m", "gpudoc", "tune", "--model", "cfg.yaml", "--device", "cuda", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return done


def test_every_gpu_is_the_default_and_one_that_fails_ends_the_trial_on_all(tmp_path):
    write_workload(tmp_path, fault="rank 1", at=40, data={"count": 4000})
    arguments = ("--memory-limit", "4GiB", "--only", "batch,speed", "--goal", "largest", "--budget", "120s", "--json")
    profile = json.loads(tune(tmp_path, *arguments).stdout)["profile"]
    assert profile["hardware"]["count"] == torch.cuda.device_count()
    assert profile["evidence"]["largest_batch"] == 39


def test_the_losses_over_gpus_have_names_and_add_up(tmp_path):
    write_workload(tmp_path, net={"width": 4096, "hidden": 4096}, data={"count": 20_000})
    document = json.loads(tune(tmp_path, "--only", "scaling", "--budget", "60s", "--json").stdout)
    points = document["scaling"]["points"]
    assert points[-1]["ranks"] == torch.cuda.device_count()
    for point in points[1:]:
        assert set(point["lost"]) == {"loader", "communication", "transfer", "contention"}
        total = sum(lost["middle"] for lost in point["lost"].values())
        assert total == pytest.approx(1 - point["efficiency"], abs=2e-4)


def test_one_gpu_has_nothing_to_scale_to(tmp_path):
    write_workload(tmp_path)
    err = tune(tmp_path, "--only", "scaling", "--gpus", "1", code=2).stderr
    assert "a single rank cannot scale" in err
