from dataclasses import replace

from gpudoc.doctor.causes import kernel_side as side
from gpudoc.doctor.model import Skip
from gpudoc.facts.model import Absent, KernelEvent, Machine
from tests.doctor.causes.judge import finds
from tests.machines.built import ask, changed, found, gpu, machine

EMPTY = Machine(pci=(), environment={}, nodes=(), gpus=Absent("no NVML"))
LOGGED = replace(machine(), kernel_log=(KernelEvent(kind="xid", text="NVRM: Xid 79", code=79),))


def visible(devices):
    return replace(EMPTY, environment={"NVIDIA_VISIBLE_DEVICES": devices})


def held(driver, *modules):
    """The GPU is held by this driver, these modules are loaded, and NVML does not start."""
    facts = changed(changed(machine(), "pci.0.driver", driver), "driver.modules", modules)
    return changed(facts, "driver.nvml_code", 9)


def nodes(facts, paths="/dev/nvidia", **changes):
    """The device files whose paths begin so, changed."""
    return replace(facts, nodes=tuple(replace(n, **changes) if n.path.startswith(paths) else n for n in facts.nodes))


def refused(code, facts=None, paths="/dev/nvidia"):
    return nodes(facts or machine(), paths, opens=False, error=f"{code}: x")


NO_UVM = nodes(machine(), "/dev/nvidia-uvm", exists=False, opens=Absent("no file"))
BARE = changed(
    changed(replace(machine(), nodes=(), gpus=Absent("x")), "container.kind", "docker"), "driver.nvml_code", 12
)

test_a_bus_without_a_gpu = finds([
    (side.look_at_bus, EMPTY, "no_gpu_on_machine info"),
    (side.look_at_bus, visible("all"), "no_gpu_on_machine warning"),
    (side.look_at_bus, visible("void"), "no_gpu_on_machine info"),
    (side.look_at_bus, replace(EMPTY, pci=Absent("no such file: /sys/bus/pci/devices")), "no_gpu_on_machine info"),
    # a GPU without a bus is still a GPU
    (side.look_at_bus, replace(EMPTY, gpus=(gpu(),)), ""),
    (side.look_at_bus, changed(EMPTY, "torch.mps_available", True), ""),
])  # fmt: skip
test_a_silent_device_is_gone_and_one_that_came_back_is_watched = finds([
    (side.look_at_answer, changed(machine(), "pci.0.answers", False), "gpu_fallen_off_bus broken"),
    (side.look_at_answer, LOGGED, "gpu_fallen_off_bus warning"),
    (side.look_at_answer, replace(LOGGED, gpus=()), "gpu_fallen_off_bus broken"),
])  # fmt: skip
test_who_holds_the_gpu = finds([
    (side.look_at_kernel_driver, held("nouveau", "nouveau"), "nouveau_loaded broken"),
    (side.look_at_kernel_driver, held("vfio-pci", "vfio_pci"), "gpu_bound_to_vfio broken"),
    (side.look_at_kernel_driver, held(Absent("no driver bound")), "driver_missing_or_not_loaded broken"),
    (side.look_at_kernel_driver, held(Absent("no driver bound"), "nvidia"), "driver_does_not_support_gpu broken"),
    # one GPU for a virtual machine beside one for the host is fine
    (side.look_at_kernel_driver, changed(machine(gpu(0), gpu(1)), "pci.1.driver", "vfio-pci"), ""),
])  # fmt: skip
test_device_files_that_do_not_open_or_are_not_there = finds([
    # a refusal by mode and one by cgroup are different causes
    (side.look_at_nodes, refused("EACCES"), "device_permission_denied broken"),
    (side.look_at_nodes, refused("EPERM"), "device_permission_denied broken"),
    (side.look_at_nodes, changed(refused("EPERM"), "container.kind", "docker"), "container_lost_gpu_cgroup broken"),
    # other jobs' GPUs may be closed
    (side.look_at_nodes, refused("EPERM", machine(gpu(0), gpu(1)), "/dev/nvidia1"), ""),
    # a container without devices matters when a GPU is meant
    (side.look_at_nodes, BARE, "container_without_gpu_access broken"),
    (side.look_at_nodes, changed(BARE, "torch.accelerator", "cpu"), "container_without_gpu_access info"),
    # UVM matters only when CUDA does not start
    (side.look_at_nodes, NO_UVM, ""),
    (side.look_at_nodes, changed(NO_UVM, "driver.cu_init_code", 999), "nvidia_uvm_missing broken"),
])  # fmt: skip


def test_a_gpu_that_is_asked_for_and_not_there_is_broken():
    assert found(side.look_at_bus, EMPTY, num_gpus=1) == [("no_gpu_on_machine", "broken")]
    assert found(side.look_at_bus, EMPTY, device="cuda") == [("no_gpu_on_machine", "broken")]


def test_a_bus_that_cannot_be_read_is_skipped():
    assert ask(side.look_at_bus, replace(EMPTY, pci=Absent("no permission"))) == [Skip("pci: no permission")]
