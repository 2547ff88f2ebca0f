from __future__ import annotations

from dataclasses import replace

import pytest

from gpudoc.doctor.causes import builds
from gpudoc.doctor.model import Skip
from gpudoc.facts.model import Absent, KernelCheck, Machine
from tests.machines.built import ask, changed, found, gpu, machine


def test_a_cpu_build_needs_a_gpu_in_reach_to_be_wrong():
    facts = changed(machine(), "torch.accelerator", "cpu")
    assert found(builds.find_cpu_only, facts) == [("cpu_only_torch", "broken")]
    assert found(builds.find_cpu_only, Machine(pci=(), torch=facts.torch)) == []
    closed = changed(replace(facts, gpus=Absent("x"), nodes=()), "container.kind", "kubernetes")
    assert found(builds.find_cpu_only, closed) == []


@pytest.mark.parametrize(("built", "wrong"), [("rocm", True), ("xpu", True), ("cuda", False), ("cpu", False)])
def test_a_build_for_another_vendor(built, wrong):
    facts = changed(machine(), "torch.accelerator", built)
    assert bool(found(builds.find_wrong_accelerator, facts)) is wrong


@pytest.mark.parametrize(
    ("driver", "built", "old"),
    [((12, 2), (12, 8), False), ((12, 8), (13, 0), True), ((13, 0), (11, 8), False), ((11, 4), (12, 1), True)],
)
def test_the_major_version_decides(driver, built, old):
    facts = changed(changed(machine(), "driver.cuda_version", driver), "torch.cuda_version", built)
    assert bool(found(builds.find_driver_too_old, facts)) is old


def test_a_compat_library_that_works_makes_an_old_driver_do():
    facts = changed(changed(machine(), "driver.cuda_version", (11, 4)), "torch.cuda_version", (12, 4))
    facts = changed(facts, "driver.libcuda_cuda_version", (12, 4))
    assert found(builds.find_driver_too_old, facts) == []
    assert found(builds.find_driver_too_old, changed(facts, "driver.cu_init_code", 803))


def test_the_modules_version_stands_in_for_nvml():
    facts = changed(machine(), "driver.cuda_version", Absent("NVML did not start"))
    facts = changed(facts, "driver.module_version", "550.54.14")
    assert found(builds.find_driver_too_old, facts) == [("driver_too_old", "broken")]
    nothing = changed(facts, "driver.module_version", Absent("no such file"))
    assert ask(builds.find_driver_too_old, nothing) == [Skip("driver.cuda_version: NVML did not start")]


@pytest.mark.parametrize(
    ("capability", "expected"),
    [
        ((9, 0), []),
        ((12, 0), [("gpu_newer_than_wheel_archs", "broken")]),
        ((6, 1), [("gpu_older_than_wheel_archs", "broken")]),
    ],
)
def test_code_for_the_gpu(capability, expected):
    assert found(builds.find_archs, machine(gpu(capability=capability))) == expected


def test_one_misfit_among_others_is_a_warning_until_a_kernel_fails_on_it():
    facts = machine(gpu(0), gpu(1, capability=(6, 1)))
    assert found(builds.find_archs, facts) == [("gpu_older_than_wheel_archs", "warning")]
    error = "CUDA error: no kernel image is available for execution on the device"
    failed = changed(facts, "torch.kernel_checks", (KernelCheck(device=1, ran=False, error=error),))
    assert found(builds.find_archs, failed) == [("gpu_older_than_wheel_archs", "broken")]
    assert found(builds.find_failed_kernel, failed) == []


def test_a_kernel_that_was_not_tried_is_no_failure():
    skipped = (KernelCheck(device=0, ran=False, skipped="a process uses the GPU"),)
    assert found(builds.find_failed_kernel, changed(machine(), "torch.kernel_checks", skipped)) == []


def test_mps_that_macos_does_not_offer():
    mac = changed(changed(machine(), "host.system", "Darwin"), "torch.mps_built", True)
    assert found(builds.find_mps, changed(mac, "torch.mps_available", False)) == [("mps_macos_too_old", "broken")]
    assert found(builds.find_mps, changed(mac, "torch.mps_available", True)) == []


def test_torch_that_is_missing_or_slow():
    assert found(builds.find_no_torch, changed(machine(), "torch.version", Absent("torch is not installed")))
    assert found(builds.find_no_torch, changed(machine(), "torch.version", Absent("not asked"))) == []
    hung = replace(machine(), probe_failures={"torch": "no answer within 13 s: import torch"})
    assert found(builds.find_hung_import, hung) == [("torch_not_answering", "warning")]


def test_a_gpu_on_which_no_kernel_was_tried_is_not_checked_and_says_why():
    checks = (KernelCheck(device=0, ran=True), KernelCheck(device=1, ran=False, skipped="a process uses the GPU"))
    facts = changed(machine(gpu(0), gpu(1)), "torch.kernel_checks", checks)
    assert ask(builds.find_failed_kernel, facts) == [Skip("GPU 1: no kernel tried: a process uses the GPU")]
    failed = (*checks[1:], KernelCheck(device=0, ran=False, error="CUDA error: an illegal instruction"))
    finding, skip = ask(builds.find_failed_kernel, changed(facts, "torch.kernel_checks", failed))
    assert [card.index for card in finding.cards] == [0]
    assert isinstance(skip, Skip)


def test_cards_without_code_are_named():
    facts = machine(gpu(0), gpu(1, capability=(6, 1)))
    (finding,) = ask(builds.find_archs, facts)
    assert (finding.id, [card.index for card in finding.cards]) == ("gpu_older_than_wheel_archs", [1])
