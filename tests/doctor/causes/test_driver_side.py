from __future__ import annotations

from dataclasses import replace

import pytest

from gpudoc.doctor.causes import driver_side as side
from gpudoc.doctor.model import Setting, Skip
from gpudoc.doctor.registry import CATALOGUE
from gpudoc.facts.model import Absent, GpuProcess, KernelEvent
from tests.machines.built import ask, changed, found, gpu, machine


@pytest.mark.parametrize(
    ("code", "host", "container"),
    [
        (4, "device_permission_denied", "container_lost_gpu_cgroup"),
        (8, "gpu_power_missing", "gpu_power_missing"),
        (12, "driver_missing_or_not_loaded", "container_without_gpu_access"),
        (18, "driver_library_mismatch", "driver_library_mismatch"),
        (999, "driver_in_bad_state", "container_lost_gpu_cgroup"),
        (77, "driver_in_bad_state", "driver_in_bad_state"),
    ],
)
def test_a_code_of_nvml_is_read_with_where_it_was_answered(code, host, container):
    facts = changed(machine(), "driver.nvml_code", code)
    assert found(side.look_at_nvml, facts) == [(host, "broken")]
    assert found(side.look_at_nvml, changed(facts, "container.kind", "podman")) == [(container, "broken")]


def test_only_a_question_inside_the_driver_shows_that_it_hangs():
    facts = changed(machine(), "driver.nvml_code", Absent("no answer within 8 s: nvmlInit"))
    assert found(side.look_at_nvml, facts) == [("driver_not_answering", "broken")]
    slow = changed(machine(), "driver.nvml_code", Absent("no answer within 8 s: nvml"))
    assert ask(side.look_at_nvml, slow) == [Skip("NVML: no answer within 8 s: nvml")]


def test_a_crash_of_the_library_is_the_drivers_fault():
    facts = replace(machine(), probe_failures={"nvml": "ended by SIGSEGV while asking: nvmlInit"})
    assert found(side.look_at_nvml, facts) == [("driver_in_bad_state", "broken")]


def test_another_users_gpu_is_no_fault():
    assert found(side.look_at_nvml, machine(gpu(0), gpu(1, nvml_code=4))) == []
    assert found(side.look_at_nvml, machine(gpu(0), gpu(1, nvml_code=15))) == [("gpu_fallen_off_bus", "broken")]


@pytest.mark.parametrize("code", [999, 10, 20])
def test_one_sick_gpu_of_several_is_no_sick_driver(code):
    (one,) = ask(side.look_at_nvml, machine(gpu(0), gpu(1, nvml_code=code, nvml_question="nvmlDeviceGetName")))
    assert (one.id, [card.index for card in one.cards]) == ("gpu_not_answering", [1])
    assert one.evidence[0].value == f"code {code} from nvmlDeviceGetName"
    assert "GPU 1" in one.evidence[0].fact
    assert found(side.look_at_nvml, machine(gpu(nvml_code=code))) == [("gpu_not_answering", "broken")]
    both = machine(gpu(0, nvml_code=code), gpu(1, nvml_code=code))
    assert {cause for cause, _ in found(side.look_at_nvml, both)} == {"driver_in_bad_state"}


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        ("0", []),
        ("1,0", []),
        ("0, 1", []),
        ("GPU-00000001", []),
        ("MIG-abc", []),
        ("", [("visible_devices_hides_gpu", "info")]),
        ("-1", [("visible_devices_hides_gpu", "info")]),
        ("2", [("visible_devices_hides_gpu", "broken")]),
        ("0,2", [("visible_devices_hides_gpu", "broken")]),
        ("0,0", [("visible_devices_hides_gpu", "broken")]),
        ("GPU-9", [("visible_devices_hides_gpu", "broken")]),
        ("GPU-0000000", [("visible_devices_hides_gpu", "broken")]),
        ("gpu0", [("visible_devices_hides_gpu", "broken")]),
    ],
)
def test_a_mask_is_read_as_cuda_reads_it(mask, expected):
    facts = replace(machine(gpu(0), gpu(1)), environment={"CUDA_VISIBLE_DEVICES": mask})
    assert found(side.look_at_mask, facts) == expected


def test_the_mask_of_amd_counts_only_for_rocm():
    facts = replace(machine(), environment={"HIP_VISIBLE_DEVICES": ""})
    assert found(side.look_at_mask, facts) == []
    rocm = changed(facts, "torch.accelerator", "rocm")
    assert found(side.look_at_mask, rocm) == [("visible_devices_hides_gpu", "info")]


def test_exclusive_mode_matters_when_it_is_taken():
    taken = (GpuProcess(pid=7, alive=True),)
    assert found(side.look_at_modes, machine(gpu(compute_mode="exclusive_process"))) == []
    busy = machine(gpu(compute_mode="exclusive_process", processes=taken))
    assert found(side.look_at_modes, busy) == [("compute_mode_exclusive", "broken")]
    assert found(side.look_at_modes, machine(gpu(compute_mode="prohibited"))) == [("compute_mode_exclusive", "broken")]


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        (2, "oom_other_process"), (34, "libcuda_stub_loaded"), (46, "compute_mode_exclusive"), (214, "gpu_ecc_error"),
        (802, "fabric_manager_not_running"), (803, "libcuda_mismatch_803"), (804, "forward_compat_on_consumer_gpu"),
        (805, "mps_daemon_unreachable"), (999, "uvm_broken_after_suspend"), (12345, "cuda_init_failed"),
    ],
)  # fmt: skip
def test_a_code_of_cu_init_names_its_cause(code, cause):
    assert found(side.look_at_cuda, changed(machine(), "driver.cu_init_code", code)) == [(cause, "broken")]


def test_a_suspend_in_the_log_makes_the_unknown_error_sure():
    facts = changed(machine(), "driver.cu_init_code", 999)
    (doubtful,) = ask(side.look_at_cuda, facts)
    slept = replace(facts, kernel_log=(KernelEvent(kind="resume", text="PM: suspend exit"),))
    (sure,) = ask(side.look_at_cuda, slept)
    assert doubtful.confidence < 0.7 < 0.9 < sure.confidence


@pytest.mark.parametrize(
    ("listed", "cause"),
    [(8, "container_without_libcuda"), (0, "container_without_gpu_access")],
    ids=["NVML", "nothing"],
)
def test_a_container_without_libcuda_is_told_from_one_without_gpus(listed, cause):
    facts = machine(*(gpu(i) for i in range(8)))
    facts = changed(replace(facts, gpus=facts.gpus[:listed]), "container.kind", "docker")
    facts = changed(facts, "environment", {"NVIDIA_DRIVER_CAPABILITIES": "utility"})
    facts = changed(facts, "driver.cu_init_code", Absent("libcuda cannot be loaded: no such file"))
    (finding,) = ask(side.look_at_cuda, facts)
    assert (finding.id, finding.severity) == (cause, "broken")
    if listed:
        seen = {observation.fact: observation.value for observation in finding.evidence}
        assert seen["GPUs"] == "8 listed by NVML"
        assert seen["NVIDIA_DRIVER_CAPABILITIES"] == "utility"
        runs = [step.run for step in CATALOGUE[cause].fix(Setting(place="docker"))]
        assert "NVIDIA_DRIVER_CAPABILITIES=compute,utility" in runs[0]


def test_gpus_closed_by_their_modes_are_named():
    closed = machine(gpu(0), gpu(1, compute_mode="prohibited"), gpu(2, mig_enabled=True, mig_instances=0))
    named = {finding.id: [card.index for card in finding.cards] for finding in ask(side.look_at_modes, closed)}
    assert named == {"compute_mode_exclusive": [1], "mig_enabled_no_instance": [2]}
