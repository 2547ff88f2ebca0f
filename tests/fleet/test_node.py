"""What a node says of itself: GPUs, software, doctor, and no name."""

from __future__ import annotations

import json
import socket
from dataclasses import replace

from gpudoc.bench.target import BenchTarget
from gpudoc.doctor.device import Choice
from gpudoc.facts.model import Absent, Driver, Gpu, Machine, Package, PythonFacts, TorchBuild
from gpudoc.fleet.documents import load
from gpudoc.fleet.node import describe_node, versions

VERSIONS = {"nvidia-cublas-cu12": "12.8.4.1", "nvidia-nccl-cu12": "2.27.5", "numpy": "2"}
PACKAGES = tuple(Package(name=name, version=version) for name, version in VERSIONS.items())
MACHINE = Machine(
    driver=Driver(module_version="580.82.07"),
    gpus=(Gpu(index=0, name="H200", vbios="96.00"), Gpu(index=1, name="H200", vbios="96.01")),
    torch=TorchBuild(version="2.9.1", cuda_version=(12, 8), device_count=2),
    python=PythonFacts(packages=PACKAGES),
)
TARGET = BenchTarget(MACHINE, Choice(device="cuda", why="the GPU"))


def test_versions_are_those_that_ranks_should_share():
    found = versions(MACHINE, on_gpu=True)
    wanted = {"driver": "580.82.07", "cuda": "12.8", "cublas": "12.8.4.1", "nccl": "2.27.5", "torch": "2.9.1"}
    assert {name: found[name] for name in wanted} == wanted
    assert found["vbios"] == "96.00, 96.01"


def test_what_no_package_brought_is_absent_and_on_a_cpu_torch_computes():
    bare = replace(MACHINE, python=PythonFacts(packages=()))
    assert isinstance(versions(bare, on_gpu=True)["cublas"], Absent)
    assert versions(bare, on_gpu=False)["cublas"] == "2.9.1"


def test_the_driver_is_known_from_whoever_tells_it():
    only_nvml = replace(MACHINE, driver=Driver(nvml_driver_version="575.1"))
    assert versions(only_nvml, on_gpu=True)["driver"] == "575.1"


def test_the_first_process_of_a_node_tells_all_and_the_others_only_of_their_gpus():
    whole = load(describe_node(TARGET, ("cuda:0", "cuda:1"), leads=True), "node").nodes[0]
    assert [gpu.model for gpu in whole.gpus] == ["H200", "H200"]
    assert not isinstance(whole.doctor, Absent)
    part = load(describe_node(TARGET, ("cuda:1",), leads=False), "node").nodes[0]
    assert [gpu.vbios for gpu in part.gpus] == ["96.01"]
    assert isinstance(part.doctor, Absent)


def test_no_host_is_named():
    told = json.dumps(describe_node(TARGET, ("cuda:0",), leads=True))
    assert f'"{socket.gethostname()}"' not in told
