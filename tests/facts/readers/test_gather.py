from __future__ import annotations

import pytest

from gpudoc.facts.model import NOT_READ, GpuProcess, Package
from gpudoc.facts.readers.gather import Gather, stated, version_pair
from gpudoc.facts.readers.model import Line


def test_the_first_statement_wins_and_keeps_its_origin():
    gather = Gather()
    gather.put("torch.version", "2.1.0", Line(3, ""))
    gather.put("torch.version", "2.2.0", Line(9, ""))
    assert gather.machine().torch.version == "2.1.0"
    assert gather.origins["torch.version"] == "line 3"


def test_gpus_come_in_order_with_their_processes_and_links():
    gather = Gather()
    gather.put_gpu(1, Line(1, ""), name="B")
    gather.put_gpu(0, Line(2, ""), name="A")
    gather.put_link(0, width=8)
    gather.put_process(1, GpuProcess(pid=7), Line(3, ""))
    first, second = gather.machine().gpus
    assert (first.name, first.link.width) == ("A", 8)
    assert second.processes[0].pid == 7


@pytest.mark.parametrize(
    ("version", "build", "accelerator", "cuda"),
    [
        ("2.3.1+cu121", "", "cuda", (12, 1)),
        ("2.3.1+cpu", "py3.10_cuda11.7_cudnn8.5.0_0", "cpu", NOT_READ),
        ("2.4.0+rocm6.1", "", "rocm", NOT_READ),
        ("2.6.0+xpu", "", "xpu", NOT_READ),
        ("2.1.0", "py3.10_cuda11.8_cudnn8.7.0_0", "cuda", (11, 8)),
        ("2.1.0", "cuda112py39h3046bfc_200", "cuda", (11, 2)),
        ("2.1.0", "cpu_py311h6d93b4c_0", "cpu", NOT_READ),
        ("2.1.0", "", NOT_READ, NOT_READ),
    ],
)
def test_the_version_or_the_build_string_tells_what_torch_was_built_for(version, build, accelerator, cuda):
    gather = Gather()
    gather.put_torch(version, Line(1, ""), build)
    torch = gather.machine().torch
    assert (torch.version, torch.accelerator, torch.cuda_version) == (version, accelerator, cuda)


def test_package_names_are_compared_in_their_normal_form():
    gather = Gather()
    gather.put_package(Package(name="nvidia_cudnn.cu12", version="9"), Line(1, ""))
    gather.put_package(Package(name="nvidia-cudnn-cu12", version="9"), Line(2, ""))
    (package,) = gather.machine().python.packages
    assert package.name == "nvidia-cudnn-cu12"


def test_nothing_said_leaves_every_fact_absent():
    machine = Gather().machine()
    assert machine.gpus == NOT_READ
    assert machine.kernel_log == NOT_READ


def test_values_that_say_nothing():
    assert stated(" Could not collect ") is None
    assert stated("| 535.54 |") == "535.54"
    assert version_pair("release 11.8, V11.8.89") == (11, 8)
    assert version_pair("none") is None
