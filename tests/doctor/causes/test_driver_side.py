from dataclasses import replace

import pytest

from gpudoc.doctor.causes import driver_side as side
from gpudoc.doctor.model import Setting, Skip
from gpudoc.doctor.registry import CATALOGUE
from gpudoc.facts.model import Absent, GpuProcess, KernelEvent
from tests.doctor.causes.judge import finds
from tests.machines.built import ask, changed, found, gpu, machine


def coded(code, place="none"):
    """NVML answered with this code, on a host or in a container."""
    return changed(changed(machine(), "driver.nvml_code", code), "container.kind", place)


def masked(mask, name="CUDA_VISIBLE_DEVICES", built="cuda"):
    return changed(replace(machine(gpu(0), gpu(1)), environment={name: mask}), "torch.accelerator", built)


def started(code):
    return changed(machine(), "driver.cu_init_code", code)


HIDDEN = "visible_devices_hides_gpu"
TAKEN = (GpuProcess(pid=7, alive=True),)
CODES = {
    4: ("device_permission_denied", "container_lost_gpu_cgroup"), 8: ("gpu_power_missing", "gpu_power_missing"),
    12: ("driver_missing_or_not_loaded", "container_without_gpu_access"),
    18: ("driver_library_mismatch", "driver_library_mismatch"), 77: ("driver_in_bad_state", "driver_in_bad_state"),
    999: ("driver_in_bad_state", "container_lost_gpu_cgroup"),
}  # fmt: skip
CRASHED = replace(machine(), probe_failures={"nvml": "ended by SIGSEGV while asking: nvmlInit"})

test_what_nvml_answers_is_read_with_where_it_was_asked = finds([
    *((side.look_at_nvml, coded(code), f"{host} broken") for code, (host, _) in CODES.items()),
    *((side.look_at_nvml, coded(code, "podman"), f"{container} broken") for code, (_, container) in CODES.items()),
    # only a question inside the driver shows that it hangs
    (side.look_at_nvml, coded(Absent("no answer within 8 s, stuck in the kernel: nvmlInit")), "driver_not_answering broken"),
    (side.look_at_nvml, coded(Absent("no answer within 8 s: nvmlInit")), "driver_slow warning"),
    (side.look_at_nvml, coded(Absent("answers are still coming after 24 s: nvmlInit")), "driver_slow warning"),
    (side.look_at_nvml, CRASHED, "driver_in_bad_state broken"),
    # another user's GPU is no fault
    (side.look_at_nvml, machine(gpu(0), gpu(1, nvml_code=4)), ""),
    (side.look_at_nvml, machine(gpu(0), gpu(1, nvml_code=15)), "gpu_fallen_off_bus broken"),
])  # fmt: skip
test_a_mask_is_read_as_cuda_reads_it_and_that_of_amd_only_for_rocm = finds([
    *((side.look_at_mask, masked(mask), "") for mask in ("0", "1,0", "0, 1", "GPU-00000001", "MIG-abc")),
    *((side.look_at_mask, masked(mask), f"{HIDDEN} info") for mask in ("", "-1")),
    *((side.look_at_mask, masked(mask), f"{HIDDEN} broken") for mask in ("2", "0,2", "0,0", "GPU-9", "GPU-0000000", "gpu0")),
    (side.look_at_mask, masked("", "HIP_VISIBLE_DEVICES"), ""),
    (side.look_at_mask, masked("", "HIP_VISIBLE_DEVICES", "rocm"), f"{HIDDEN} info"),
])  # fmt: skip
test_exclusive_mode_matters_when_it_is_taken = finds([
    (side.look_at_modes, machine(gpu(compute_mode="exclusive_process")), ""),
    (side.look_at_modes, machine(gpu(compute_mode="exclusive_process", processes=TAKEN)), "compute_mode_exclusive broken"),
    (side.look_at_modes, machine(gpu(compute_mode="prohibited")), "compute_mode_exclusive broken"),
])  # fmt: skip
test_a_code_of_cu_init_names_its_cause = finds([
    (side.look_at_cuda, started(code), f"{cause} broken")
    for code, cause in {
        2: "oom_other_process", 34: "libcuda_stub_loaded", 46: "compute_mode_exclusive", 214: "gpu_ecc_error",
        802: "fabric_manager_not_running", 803: "libcuda_mismatch_803", 804: "forward_compat_on_consumer_gpu",
        805: "mps_daemon_unreachable", 999: "uvm_broken_after_suspend", 12345: "cuda_init_failed",
    }.items()
])  # fmt: skip


def test_an_answer_that_did_not_come_from_the_driver_is_skipped():
    assert ask(side.look_at_nvml, coded(Absent("no answer within 8 s: nvml"))) == [
        Skip("NVML: no answer within 8 s: nvml")
    ]


@pytest.mark.parametrize("code", [999, 10, 20])
def test_one_sick_gpu_of_several_is_no_sick_driver(code):
    (one,) = ask(side.look_at_nvml, machine(gpu(0), gpu(1, nvml_code=code, nvml_question="nvmlDeviceGetName")))
    assert (one.id, [card.index for card in one.cards]) == ("gpu_not_answering", [1])
    assert one.evidence[0].value == f"code {code} from nvmlDeviceGetName"
    assert "GPU 1" in one.evidence[0].fact
    assert found(side.look_at_nvml, machine(gpu(nvml_code=code))) == [("gpu_not_answering", "broken")]
    both = machine(gpu(0, nvml_code=code), gpu(1, nvml_code=code))
    assert {cause for cause, _ in found(side.look_at_nvml, both)} == {"driver_in_bad_state"}


def test_a_suspend_in_the_log_makes_the_unknown_error_sure():
    (doubtful,) = ask(side.look_at_cuda, started(999))
    slept = replace(started(999), kernel_log=(KernelEvent(kind="resume", text="PM: suspend exit"),))
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
        assert (seen["GPUs"], seen["NVIDIA_DRIVER_CAPABILITIES"]) == ("8 listed by NVML", "utility")
        runs = [step.run for step in CATALOGUE[cause].fix(Setting(place="docker"))]
        assert "NVIDIA_DRIVER_CAPABILITIES=compute,utility" in runs[0]


def test_gpus_closed_by_their_modes_are_named():
    closed = machine(gpu(0), gpu(1, compute_mode="prohibited"), gpu(2, mig_enabled=True, mig_instances=0))
    named = {finding.id: [card.index for card in finding.cards] for finding in ask(side.look_at_modes, closed)}
    assert named == {"compute_mode_exclusive": [1], "mig_enabled_no_instance": [2]}
