"""NVML through the fake library: what is told of a GPU, and what an error of one call does."""

from __future__ import annotations

import pytest

from gpudoc.doctor.sharing import sharers
from gpudoc.facts.model import Absent
from gpudoc.facts.nvidia import throttle_names
from tests.fakes.machine import GIB, H100, RTX4090, FakeMachine


@pytest.fixture
def machine(tmp_path):
    fake = FakeMachine(tmp_path / "m")
    fake.driver("580.65.06", (13, 0))
    fake.gpus(H100)
    fake.torch()
    return fake


def test_a_gpu_is_described_in_the_units_of_its_names(machine):
    (gpu,) = machine.collect(quick=True).gpus
    assert (gpu.name, gpu.brand, gpu.capability) == ("NVIDIA H100 80GB HBM3", "nvidia", (9, 0))
    assert gpu.memory_total_bytes == 80 * GIB
    assert (gpu.power_w, gpu.power_limit_w) == (45.0, 700.0)
    assert (gpu.power_limit_min_w, gpu.power_limit_default_w, gpu.power_limit_max_w) == (350.0, 700.0, 700.0)
    assert (gpu.link.generation, gpu.link.generation_max, gpu.link.width) == (1, 5, 16)
    assert gpu.pci_address == "0000:17:00.0"
    assert (gpu.nvlink_active, gpu.nvlink_total, gpu.fabric_state) == (18, 18, "completed")
    assert gpu.throttle_reasons == ("gpu_idle",)
    assert gpu.compute_mode == "default"
    assert gpu.sm_count == 132


def test_the_ends_of_the_links_are_other_gpus_or_a_switch(machine):
    machine.answer("nvmlDeviceGetNvLinkState", "3 4", 0)
    for link, (kind, address) in enumerate(((0, "00000000:27:00.0"), (2, "00000000:C5:00.0"), (0, "00000000:27:00.0"))):
        machine.answer(f"nvmlDeviceGetNvLinkRemoteDeviceType.{link}", kind, 0)
        machine.answer(f"nvmlDeviceGetNvLinkRemotePciInfo.{link}", address, 0)
    assert machine.collect(quick=True).gpus[0].nvlink_ends == ("0000:27:00.0", "switch", "0000:27:00.0")
    machine.error("nvmlDeviceGetNvLinkRemotePciInfo.2", 4, 0)
    assert machine.collect(quick=True).gpus[0].nvlink_ends == Absent("no permission")


def test_the_driver_says_its_versions(machine):
    driver = machine.collect(quick=True).driver
    assert (driver.nvml_code, driver.nvml_driver_version, driver.cuda_version) == (0, "580.65.06", (13, 0))


def test_an_error_of_one_call_is_one_absent_fact(machine):
    machine.error("nvmlDeviceGetPowerUsage", 3)
    machine.error("nvmlDeviceGetMemoryInfo", 999)
    (gpu,) = machine.collect(quick=True).gpus
    assert gpu.power_w == Absent("not supported by this GPU or driver")
    assert gpu.memory_total_bytes == Absent("the driver answered: unknown error")
    assert gpu.name == "NVIDIA H100 80GB HBM3"


def test_a_gpu_without_ecc_says_not_supported_rather_than_zero(tmp_path):
    fake = FakeMachine(tmp_path / "m")
    fake.driver()
    fake.gpus(RTX4090)
    (gpu,) = fake.collect(quick=True).gpus
    assert gpu.ecc_enabled == Absent("not supported by this GPU or driver")
    assert gpu.rows_remap_failed == Absent("not supported by this GPU or driver")


def test_a_lost_gpu_is_listed_with_its_code(machine):
    machine.gpus(H100)
    machine.error("nvmlDeviceGetHandleByIndex", 15, 1)
    first, second = machine.collect(quick=True).gpus
    assert (first.lost, first.nvml_code) == (False, 0)
    assert (second.lost, second.nvml_code) == (True, 15)


def test_processes_are_named_and_the_dead_are_told(machine):
    machine.file("proc/4242/comm", "python\n")
    machine.answer("nvmlDeviceGetComputeRunningProcesses", f"4242:{GIB} 999999:{2 * GIB}", 0)
    (gpu,) = machine.collect(quick=True).gpus
    assert [(p.pid, p.memory_bytes, p.alive) for p in gpu.processes] == [(4242, GIB, True), (999999, 2 * GIB, False)]
    assert gpu.processes[0].name == "python"
    assert isinstance(gpu.processes[1].name, Absent)
    assert all(isinstance(process.sm_percent, Absent) for process in gpu.processes)


@pytest.mark.parametrize(
    ("samples", "used"),
    [("4242:30 4242:80", [80, 0]), ("", [0, 0]), ("4242:0 77:0", [0, 0]), ("77:5", [None, None])],
)
def test_what_each_process_uses_of_the_sms(machine, samples, used):
    machine.answer("nvmlDeviceGetComputeRunningProcesses", f"4242:{GIB} 999:{GIB}", 0)
    machine.answer("nvmlDeviceGetProcessUtilization", samples, 0)
    (gpu,) = machine.collect(quick=True).gpus
    found = [None if isinstance(process.sm_percent, Absent) else process.sm_percent for process in gpu.processes]
    assert found == used


@pytest.mark.parametrize("question", ["Graphics", "MPSCompute"])
def test_the_work_of_a_screen_leaves_it_known_that_a_notebook_rests(machine, question):
    machine.answer("nvmlDeviceGetComputeRunningProcesses", f"4242:{GIB}", 0)
    machine.answer("nvmlDeviceGetProcessUtilization", "77:12", 0)
    machine.answer(f"nvmlDeviceGet{question}RunningProcesses", f"77:{GIB}", 0)
    (gpu,) = machine.collect(quick=True).gpus
    assert [(process.pid, process.sm_percent) for process in gpu.processes] == [(4242, 0)]
    assert sharers(gpu) == ()


def test_nvml_that_does_not_start_says_how(machine):
    machine.error("nvmlInit", 18)
    facts = machine.collect(quick=True)
    assert facts.driver.nvml_code == 18
    assert isinstance(facts.gpus, Absent)


def test_a_hang_names_the_call(machine):
    from gpudoc.facts import Deadlines

    machine.hang("nvmlDeviceGetTotalEccErrors.1.0")
    facts = machine.collect(quick=True, deadlines=Deadlines(driver_s=3.0, files_s=5.0))
    assert facts.probe_failures["nvml"] == "no answer within 3 s, stuck in the kernel: nvmlDeviceGetTotalEccErrors"
    assert facts.gpus[0].name == "NVIDIA H100 80GB HBM3"


def test_mig_instances_are_counted(machine):
    machine.answer("nvmlDeviceGetMigMode", "1 1", 0)
    machine.answer("nvmlDeviceGetMaxMigDeviceCount", 7, 0)
    machine.answer("mig_instances", 3, 0)
    (gpu,) = machine.collect(quick=True).gpus
    assert (gpu.mig_enabled, gpu.mig_instances) == (True, 3)


def test_throttle_reasons_by_their_bits():
    assert throttle_names(0x4 | 0x40) == ("sw_power_cap", "hw_thermal")
    assert throttle_names(0) == ()


def test_the_replay_counter_is_read_twice_and_only_its_growth_told(machine):
    (still,) = machine.collect(quick=True).gpus
    assert (still.link.replays, still.link.replays_added) == (0, 0)
    machine.answer("nvmlDeviceGetPcieReplayCounter", "7 3")
    (growing,) = machine.collect(quick=True).gpus
    assert (growing.link.replays, growing.link.replays_added) == (7, 3)


@pytest.mark.parametrize(
    ("graphics", "mps", "held"),
    [("", "", 1), ("7:2", "", 3), ("4242:1 7:2", "8:4", 7)],
    ids=["compute", "draws", "all"],
)
def test_memory_is_accounted_to_each_program_once(machine, graphics, mps, held):
    def sized(text):
        return " ".join(f"{pid}:{int(size) * GIB}" for pid, size in (entry.split(":") for entry in text.split()))

    machine.answer("nvmlDeviceGetComputeRunningProcesses", sized("4242:1"), 0)
    machine.answer("nvmlDeviceGetGraphicsRunningProcesses", sized(graphics), 0)
    machine.answer("nvmlDeviceGetMPSComputeRunningProcesses", sized(mps), 0)
    (gpu,) = machine.collect(quick=True).gpus
    assert gpu.memory_accounted_bytes == held * GIB
    assert [process.pid for process in gpu.processes] == [4242]


def test_memory_is_not_accounted_when_a_list_of_programs_is_missing(machine):
    machine.error("nvmlDeviceGetGraphicsRunningProcesses", 4)
    (gpu,) = machine.collect(quick=True).gpus
    assert gpu.memory_accounted_bytes == Absent("no permission")


def test_memory_that_the_system_uses_as_its_own_is_not_accounted(machine):
    machine.answer("nvmlDeviceGetNumaNodeId", 2, 0)
    (gpu,) = machine.collect(quick=True).gpus
    assert gpu.memory_accounted_bytes == Absent("this GPU shares its memory with the system")


def test_with_mig_on_memory_is_not_accounted(machine):
    machine.answer("nvmlDeviceGetMigMode", "1 1", 0)
    (gpu,) = machine.collect(quick=True).gpus
    assert gpu.memory_accounted_bytes == Absent("with MIG on, each instance has its own processes")


def test_a_proc_that_hides_others_leaves_open_who_is_alive(machine):
    machine.remove("proc/1")
    machine.answer("nvmlDeviceGetComputeRunningProcesses", f"999999:{GIB}", 0)
    (gpu,) = machine.collect(quick=True).gpus
    assert gpu.processes[0].alive == Absent("/proc hides other users' processes")


def test_time_lost_to_heat_is_that_of_the_longer_counter_or_of_the_older_one(machine):
    machine.answer("field.269", 5, 0)
    machine.answer("field.270", 3, 0)
    machine.answer("field.75", 9, 0)
    assert machine.collect(quick=True).gpus[0].thermal_slowdown_ns == 5
    machine.error("field.270", 3, 0)
    assert machine.collect(quick=True).gpus[0].thermal_slowdown_ns == 9


def test_the_one_gpu_without_a_handle_is_named_by_the_address_that_is_left(machine):
    machine.gpus(H100, 2)
    machine.error("nvmlDeviceGetHandleByIndex", 999, 1)
    gpus = machine.collect(quick=True).gpus
    assert [gpu.pci_address for gpu in gpus] == [machine.address(index) for index in range(3)]
