from __future__ import annotations

from dataclasses import replace

import pytest

from gpudoc.doctor.causes import kernel_side as side
from gpudoc.doctor.model import Skip
from gpudoc.facts.model import Absent, DeviceNode, KernelEvent, Machine
from tests.machines.built import ask, changed, found, gpu, machine

EMPTY = Machine(pci=(), environment={}, nodes=(), gpus=Absent("no NVML"))


def test_no_gpu_is_information_unless_asked_for():
    assert found(side.look_at_bus, EMPTY) == [("no_gpu_on_machine", "info")]
    assert found(side.look_at_bus, EMPTY, num_gpus=1) == [("no_gpu_on_machine", "broken")]
    assert found(side.look_at_bus, EMPTY, device="cuda") == [("no_gpu_on_machine", "broken")]
    image = replace(EMPTY, environment={"NVIDIA_VISIBLE_DEVICES": "all"})
    assert found(side.look_at_bus, image) == [("no_gpu_on_machine", "warning")]
    void = replace(EMPTY, environment={"NVIDIA_VISIBLE_DEVICES": "void"})
    assert found(side.look_at_bus, void) == [("no_gpu_on_machine", "info")]


def test_a_bus_that_cannot_be_read_is_skipped_one_that_is_not_there_is_empty():
    assert ask(side.look_at_bus, replace(EMPTY, pci=Absent("no permission"))) == [Skip("pci: no permission")]
    none = replace(EMPTY, pci=Absent("no such file: /sys/bus/pci/devices"))
    assert found(side.look_at_bus, none) == [("no_gpu_on_machine", "info")]


def test_a_gpu_without_a_bus_is_still_a_gpu():
    assert found(side.look_at_bus, replace(EMPTY, gpus=(gpu(),))) == []
    assert found(side.look_at_bus, changed(EMPTY, "torch.mps_available", True)) == []


def test_a_silent_device_is_gone_and_one_that_came_back_is_watched():
    assert found(side.look_at_answer, changed(machine(), "pci.0.answers", False)) == [("gpu_fallen_off_bus", "broken")]
    logged = replace(machine(), kernel_log=(KernelEvent(kind="xid", text="NVRM: Xid 79", code=79),))
    assert found(side.look_at_answer, logged) == [("gpu_fallen_off_bus", "warning")]
    assert found(side.look_at_answer, replace(logged, gpus=())) == [("gpu_fallen_off_bus", "broken")]


@pytest.mark.parametrize(
    ("driver", "modules", "cause"),
    [
        ("nouveau", ("nouveau",), "nouveau_loaded"),
        ("vfio-pci", ("vfio_pci",), "gpu_bound_to_vfio"),
        (Absent("no driver bound"), (), "driver_missing_or_not_loaded"),
        (Absent("no driver bound"), ("nvidia",), "driver_does_not_support_gpu"),
    ],
)
def test_who_holds_the_gpu(driver, modules, cause):
    facts = changed(changed(machine(), "pci.0.driver", driver), "driver.modules", modules)
    facts = changed(facts, "driver.nvml_code", 9)
    assert found(side.look_at_kernel_driver, facts) == [(cause, "broken")]


def test_one_gpu_for_a_virtual_machine_beside_one_for_the_host_is_fine():
    facts = changed(machine(gpu(0), gpu(1)), "pci.1.driver", "vfio-pci")
    assert found(side.look_at_kernel_driver, facts) == []


def refused(code: str) -> Machine:
    facts = machine()
    nodes = tuple(replace(node, opens=False, error=f"{code}: x") for node in facts.nodes)
    return replace(facts, nodes=nodes)


def test_a_refusal_by_mode_and_one_by_cgroup_are_different_causes():
    assert found(side.look_at_nodes, refused("EACCES")) == [("device_permission_denied", "broken")]
    assert found(side.look_at_nodes, refused("EPERM")) == [("device_permission_denied", "broken")]
    inside = changed(refused("EPERM"), "container.kind", "docker")
    assert found(side.look_at_nodes, inside) == [("container_lost_gpu_cgroup", "broken")]


def test_other_jobs_gpus_may_be_closed():
    facts = machine(gpu(0), gpu(1))
    nodes = tuple(replace(n, opens=False, error="EPERM: x") if n.path == "/dev/nvidia1" else n for n in facts.nodes)
    assert found(side.look_at_nodes, replace(facts, nodes=nodes)) == []


def test_a_container_without_devices_matters_when_a_gpu_is_meant():
    facts = changed(replace(machine(), nodes=(), gpus=Absent("x")), "container.kind", "docker")
    facts = changed(facts, "driver.nvml_code", 12)
    assert found(side.look_at_nodes, facts) == [("container_without_gpu_access", "broken")]
    cpu = changed(facts, "torch.accelerator", "cpu")
    assert found(side.look_at_nodes, cpu) == [("container_without_gpu_access", "info")]


def test_uvm_missing_matters_only_when_cuda_does_not_start():
    facts = machine()
    without = tuple(n if n.path != "/dev/nvidia-uvm" else DeviceNode(path=n.path, exists=False) for n in facts.nodes)
    facts = replace(facts, nodes=without)
    assert found(side.look_at_nodes, facts) == []
    assert found(side.look_at_nodes, changed(facts, "driver.cu_init_code", 999)) == [("nvidia_uvm_missing", "broken")]
