"""The recipes of docs/recipes do what they say: their scripts, manifests and rows are run as they stand there."""

import pathlib
import re
import shutil
import subprocess
import sys
import textwrap

import pytest
import yaml

from gpudoc.doctor.examine import examine_text
from gpudoc.doctor.signatures import Matcher
from gpudoc.knowledge import signature_rows
from gpudoc.knowledge.signature_rows import load_folder
from tests.doctor.test_signatures import find

RECIPES = pathlib.Path(__file__).resolve().parents[1] / "docs" / "recipes"
FOLDER = pathlib.Path(signature_rows.__file__).with_name("signatures")


def blocks(name, kind):
    text = (RECIPES / name).read_text("utf-8")
    return [textwrap.dedent(block) for block in re.findall(rf"^ *```{kind}\n(.*?)^ *```", text, re.M | re.S)]


@pytest.mark.parametrize(("code", "drained"), [(0, False), (1, True), (2, False), (70, False), (124, False)])
def test_the_prolog_drains_a_node_that_is_ill_and_no_other(tmp_path, code, drained):
    script = next(block for block in blocks("slurm.md", "text") if block.startswith("#!/bin/sh"))
    doctor = tmp_path / "gpudoc"
    doctor.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\nexit {code}\n')
    doctor.chmod(0o755)
    script = script.replace("/opt/gpudoc/bin/gpudoc", str(doctor)).replace("/var/log", str(tmp_path))
    job = {"PATH": "/usr/bin:/bin", "SLURM_JOB_GPUS": "0,1", "SLURM_JOB_ID": "7"}
    done = subprocess.run(["sh", "-c", script], env=job, capture_output=True, text=True, check=False)
    assert (done.returncode != 0) is drained
    assert (tmp_path / "asked").read_text() == f"doctor --quick --expect-gpus 8 --out {tmp_path}/gpudoc-7.json\n"


def test_the_prolog_leaves_a_job_without_gpus_alone(tmp_path):
    script = next(block for block in blocks("slurm.md", "text") if block.startswith("#!/bin/sh"))
    done = subprocess.run(
        ["sh", "-c", script.replace("timeout 60", "exit 9 #")], env={"SLURM_JOB_ID": "7"}, check=False
    )
    assert done.returncode == 0


def test_the_row_that_is_shown_teaches_doctor_the_message(tmp_path):
    (row,) = yaml.safe_load(blocks("add-a-message.md", "yaml")[0])
    (example,) = row["examples"]
    assert row["cause"] not in [found.id for found in examine_text([("log", example.encode())]).findings], (
        "known by now"
    )
    shutil.copytree(FOLDER, tmp_path / "rows")
    with (tmp_path / "rows" / "compute.yaml").open("a") as family:
        family.write("\n" + blocks("add-a-message.md", "yaml")[0])
    rows = load_folder(tmp_path / "rows", examples=True)
    assert [found.id for found in find(Matcher(rows), example)] == [row["cause"]]


def test_the_cell_that_catches_an_error_shows_its_cause_and_raises_it(tmp_path):
    cell = next(block for block in blocks("notebook.md", "python") if "traceback" in block)
    failing = "def train():\n    raise AssertionError('Torch not compiled with CUDA enabled')\n"
    done = subprocess.run(
        [sys.executable, "-c", failing + cell], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert "cpu_only_torch" in done.stdout
    assert done.returncode == 1
    assert "AssertionError: Torch not compiled" in done.stderr


@pytest.mark.parametrize("name", ["ci.md", "containers.md", "add-a-message.md"])
def test_every_manifest_is_yaml(name):
    assert blocks(name, "yaml")
    for block in blocks(name, "yaml"):
        assert yaml.safe_load(block), block


def test_the_pod_examines_its_node_with_as_many_gpus_as_it_asks_for():
    (pod,) = (yaml.safe_load(block) for block in blocks("containers.md", "yaml"))
    (doctor,) = pod["spec"]["initContainers"]
    (train,) = pod["spec"]["containers"]
    asked = int(doctor["command"][doctor["command"].index("--expect-gpus") + 1])
    assert asked == doctor["resources"]["limits"]["nvidia.com/gpu"] == train["resources"]["limits"]["nvidia.com/gpu"]
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    assert volumes[train["volumeMounts"][0]["name"]]["emptyDir"]["medium"] == "Memory"
