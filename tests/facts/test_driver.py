from __future__ import annotations

import pytest

from gpudoc.facts import driver
from gpudoc.facts.model import Absent
from tests.fakes.machine import H100, FakeMachine


@pytest.fixture
def machine(tmp_path):
    fake = FakeMachine(tmp_path / "m")
    fake.driver("550.54.14", (12, 4), open_module=False)
    fake.gpus(H100)
    return fake


def test_module_and_library_have_each_their_version(machine):
    machine.remove("usr/lib/x86_64-linux-gnu/libnvidia-ml.so.550.54.14")
    machine.file("usr/lib/x86_64-linux-gnu/libnvidia-ml.so.550.120")
    facts = driver.collect(machine.root)
    assert (facts.vendor, facts.module_version, facts.library_version) == ("nvidia", "550.54.14", "550.120")
    assert facts.open_kernel_module is False
    assert facts.modules == ("nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm")


def test_the_version_stands_in_proc_too(machine):
    machine.remove("sys/module/nvidia/version")
    assert driver.collect(machine.root).module_version == "550.54.14"


def test_without_a_driver_nothing_is_invented(tmp_path):
    facts = driver.collect(FakeMachine(tmp_path / "m").root)
    assert facts.vendor == "none"
    assert isinstance(facts.module_version, Absent)
    assert isinstance(facts.library_version, Absent)


def test_device_files_are_opened(machine):
    nodes = {node.path: node for node in driver.collect_nodes(machine.root)}
    assert nodes["/dev/nvidia0"].opens is True
    assert nodes["/dev/nvidiactl"].opens is True


def test_missing_files_that_every_driver_makes_are_named(tmp_path):
    nodes = {node.path: node for node in driver.collect_nodes(FakeMachine(tmp_path / "m").root)}
    assert {path: node.exists for path, node in nodes.items()} == {"/dev/nvidiactl": False, "/dev/nvidia-uvm": False}


def test_a_refusal_names_its_code(machine, monkeypatch):
    import os

    def refuse(path, flags):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "open", refuse)
    nodes = {node.path: node for node in driver.collect_nodes(machine.root)}
    assert nodes["/dev/nvidia0"].opens is False
    assert nodes["/dev/nvidia0"].error == "EPERM: operation not permitted"


def test_amds_files_are_listed_when_there_is_kfd(machine):
    machine.file("dev/kfd")
    machine.file("dev/dri/renderD128")
    paths = {node.path for node in driver.collect_nodes(machine.root)}
    assert {"/dev/kfd", "/dev/dri/renderD128"} <= paths


def test_a_parameter_of_the_module(machine):
    machine.file("proc/driver/nvidia/params", "EnableMSI: 1\nPreserveVideoMemoryAllocations: 0\n")
    assert driver.collect(machine.root).preserve_memory_on_suspend == 0
