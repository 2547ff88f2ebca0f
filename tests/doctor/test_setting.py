from __future__ import annotations

from typing import get_args

import pytest

from gpudoc.doctor.model import Evidence, Packager, Place
from gpudoc.doctor.setting import describe
from gpudoc.facts.model import Absent, Container, Driver, Gpu, GpuProcess, Host, Machine, PythonFacts, known
from gpudoc.facts.readers import read
from gpudoc.knowledge.tables import read_table


def of_text(text):
    reading = read(text)
    return describe(Evidence(source="file", machine=reading.machine, reading=reading))


def of_machine(**parts):
    return describe(Evidence(source="machine", machine=Machine(**parts)))


@pytest.mark.parametrize(
    ("text", "packager", "place"),
    [
        ("$ uv pip install torch\nError", "uv", "host"),
        ("conda install pytorch", "conda", "host"),
        ("docker run --gpus all x", "pip", "docker"),
        ("sbatch job.sh\nslurmstepd: error", "pip", "slurm"),
        ("kubectl apply -f pod.yaml", "pip", "kubernetes"),
        ("in Google Colab: /content/x", "pip", "colab"),
        ("OSError: [WinError 126] C:\\py\\torch\\lib\\x.dll", "pip", "windows"),
        ("nothing of the kind", "pip", "host"),
    ],
)
def test_packager_and_place_are_those_of_the_text(text, packager, place):
    setting = of_text(text)
    assert (setting.packager, setting.place) == (packager, place)


def test_the_rows_are_named_as_places_and_packagers_are():
    for section, names in (("places", get_args(Place)), ("packagers", get_args(Packager))):
        assert {row["name"] for row in read_table("places.yaml", section)} <= set(names)


def test_facts_of_a_machine_beat_words():
    assert of_machine(host=Host(wsl=True)).place == "wsl"
    assert of_machine(container=Container(kind="docker", scheduler="kubernetes")).place == "kubernetes"
    assert of_machine(container=Container(kind="none", scheduler="slurm")).place == "slurm"
    assert of_machine(python=PythonFacts(manager="uv")).packager == "uv"


def test_a_gpu_s_name_gives_its_capability_and_a_driver_s_version_its_cuda():
    setting = of_machine(gpus=(Gpu(index=0, name="Tesla V100-SXM2-16GB"),), driver=Driver(module_version="470.57.02"))
    assert setting.capability == (7, 0)
    assert setting.driver_cuda == (11, 4)
    assert setting.num_gpus == 1


def test_absence_is_none_for_wording_only():
    assert known(Absent("x")) is None
    assert known(0) == 0


@pytest.mark.parametrize(
    ("text", "opened"),
    [
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build", True),
        ("NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.105.08  Wed Oct 29 23:15:11 UTC 2025", False),
        ("driver 580", None),
    ],
)
def test_the_kind_of_kernel_module_is_the_one_that_the_driver_names(text, opened):
    assert of_text(text).open_module is opened


def test_who_uses_a_gpu_is_known_only_where_the_machine_told():
    python = GpuProcess(pid=7, name="python")
    gpus = (Gpu(index=0, processes=(python,)), Gpu(index=1, processes=Absent("the GPU is lost")))
    assert of_machine(gpus=gpus).holders == {0: (python,)}
    assert of_machine(driver=Driver(open_kernel_module=True)).open_module is True
