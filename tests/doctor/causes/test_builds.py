from dataclasses import replace

from gpudoc.doctor.causes import builds
from gpudoc.doctor.model import Skip
from gpudoc.facts.model import Absent, KernelCheck, Machine
from tests.doctor.causes.judge import finds
from tests.machines.built import ask, changed, gpu, machine


def torch(**facts):
    """A machine whose torch has these facts."""
    return replace(machine(), torch=replace(machine().torch, **facts))


def driver(built, **facts):
    """A torch built for this CUDA on a driver with these facts."""
    return replace(torch(cuda_version=built), driver=replace(machine().driver, **facts))


def in_wsl(machine):
    return changed(machine, "host.wsl", True)


CPU = torch(accelerator="cpu")
CLOSED = changed(replace(CPU, gpus=Absent("x"), nodes=()), "container.kind", "kubernetes")
COMPAT = {"cuda_version": (11, 4), "libcuda_cuda_version": (12, 4)}
NO_NVML = {"cuda_version": Absent("NVML did not start")}
MIXED = machine(gpu(0), gpu(1, capability=(6, 1)))
FAILED = (
    KernelCheck(device=1, ran=False, error="CUDA error: no kernel image is available for execution on the device"),
)
UNTRIED = KernelCheck(device=1, ran=False, skipped="a process uses the GPU")
MAC = replace(torch(mps_built=True), host=replace(machine().host, system="Darwin"))

test_a_build_for_another_kind_of_device = finds([
    (builds.find_cpu_only, CPU, "cpu_only_torch broken"),
    (builds.find_cpu_only, Machine(pci=(), torch=CPU.torch), ""),
    (builds.find_cpu_only, CLOSED, ""),
    (builds.find_wrong_accelerator, torch(accelerator="rocm"), "wrong_accelerator_build broken"),
    (builds.find_wrong_accelerator, torch(accelerator="xpu"), "wrong_accelerator_build broken"),
    (builds.find_wrong_accelerator, torch(accelerator="cuda"), ""),
    (builds.find_wrong_accelerator, CPU, ""),
    (builds.find_mps, changed(MAC, "torch.mps_available", False), "mps_macos_too_old broken"),
    (builds.find_mps, changed(MAC, "torch.mps_available", True), ""),
])  # fmt: skip
test_the_major_version_of_cuda_decides = finds([
    (builds.find_driver_too_old, driver((12, 8), cuda_version=(12, 2)), ""),
    (builds.find_driver_too_old, driver((13, 0), cuda_version=(12, 8)), "driver_too_old broken"),
    (builds.find_driver_too_old, driver((11, 8), cuda_version=(13, 0)), ""),
    (builds.find_driver_too_old, driver((12, 1), cuda_version=(11, 4)), "driver_too_old broken"),
    # of one number Linux's driver carries CUDA 12.0 and that of Windows CUDA 11.8
    (builds.find_driver_too_old, driver((12, 6), **NO_NVML, module_version="526.98"), ""),
    (builds.find_driver_too_old, in_wsl(driver((12, 6), **NO_NVML, module_version="526.98")), "driver_too_old broken"),
    # a compat library that works makes an old driver do
    (builds.find_driver_too_old, driver((12, 4), **COMPAT), ""),
    (builds.find_driver_too_old, driver((12, 4), cu_init_code=803, **COMPAT), "driver_too_old broken"),
    # the module's version stands in for NVML
    (builds.find_driver_too_old, driver((13, 0), module_version="550.54.14", **NO_NVML), "driver_too_old broken"),
])  # fmt: skip
test_code_for_the_gpu = finds([
    (builds.find_archs, machine(gpu(capability=(9, 0))), ""),
    (builds.find_archs, machine(gpu(capability=(12, 0))), "gpu_newer_than_wheel_archs broken"),
    (builds.find_archs, machine(gpu(capability=(6, 1))), "gpu_older_than_wheel_archs broken"),
    # one misfit among others is a warning until a kernel fails on it
    (builds.find_archs, MIXED, "gpu_older_than_wheel_archs warning"),
    (builds.find_archs, changed(MIXED, "torch.kernel_checks", FAILED), "gpu_older_than_wheel_archs broken"),
    (builds.find_failed_kernel, changed(MIXED, "torch.kernel_checks", FAILED), ""),
    (builds.find_failed_kernel, torch(kernel_checks=(replace(UNTRIED, device=0),)), ""),
])  # fmt: skip
test_torch_that_is_missing_or_slow = finds([
    (builds.find_no_torch, torch(version=Absent("torch is not installed")), "torch_not_installed info"),
    (builds.find_no_torch, torch(version=Absent("not asked")), ""),
    (builds.find_hung_import, replace(machine(), probe_failures={"torch": "no answer within 13 s: import torch"}), "torch_not_answering warning"),
    (builds.find_dying_import, replace(machine(), probe_failures={"torch": "ended by SIGSEGV while asking: import torch"}), "torch_import_crashes broken"),
    (builds.find_dying_import, replace(machine(), probe_failures={"torch": "ended by SIGKILL while asking: import torch"}), ""),
    (builds.find_dying_import, replace(machine(), probe_failures={"torch": "ended by SIGSEGV while asking: a tiny kernel on device 0"}), ""),
])  # fmt: skip


def test_without_any_version_of_the_driver_nothing_is_said():
    nothing = driver((13, 0), module_version=Absent("no such file"), **NO_NVML)
    assert ask(builds.find_driver_too_old, nothing) == [Skip("driver.cuda_version: NVML did not start")]


def test_a_gpu_on_which_no_kernel_was_tried_is_not_checked_and_says_why():
    facts = changed(machine(gpu(0), gpu(1)), "torch.kernel_checks", (KernelCheck(device=0, ran=True), UNTRIED))
    assert ask(builds.find_failed_kernel, facts) == [Skip("GPU 1: no kernel tried: a process uses the GPU")]
    failed = (UNTRIED, KernelCheck(device=0, ran=False, error="CUDA error: an illegal instruction"))
    finding, skip = ask(builds.find_failed_kernel, changed(facts, "torch.kernel_checks", failed))
    assert [card.index for card in finding.cards] == [0]
    assert isinstance(skip, Skip)


def test_cards_without_code_are_named():
    (finding,) = ask(builds.find_archs, MIXED)
    assert (finding.id, [card.index for card in finding.cards]) == ("gpu_older_than_wheel_archs", [1])
