from __future__ import annotations

from dataclasses import replace

import pytest

from gpudoc.doctor.causes import hardware
from gpudoc.doctor.model import Skip
from gpudoc.facts.model import GpuProcess, KernelEvent, Link
from tests.machines.built import GIB, ask, changed, found, gpu, machine


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"ecc_corrected_aggregate": 900}, []),
        ({"ecc_uncorrected_aggregate": 3}, []),
        ({"ecc_uncorrected_volatile": 1}, [("gpu_ecc_error", "warning")]),
        ({"rows_remap_pending": True}, [("gpu_ecc_error", "warning")]),
        ({"ecc_uncorrected_volatile": 1, "rows_remap_pending": True}, [("gpu_ecc_error", "broken")]),
        ({"sram_threshold_exceeded": True}, [("gpu_ecc_error", "broken")]),
    ],
)
def test_memory_errors_by_what_they_call_for(changes, expected):
    assert found(hardware.find_ecc, machine(gpu(**changes))) == expected


def test_xids_of_programs_are_no_finding_of_the_card():
    def log(code: int):
        return replace(machine(), kernel_log=(KernelEvent(kind="xid", text=f"Xid {code}", code=code),))

    finders = (hardware.find_ecc, hardware.find_fault, hardware.find_gsp, hardware.find_nvlink)
    named = {
        code: [cause for find in finders for cause, _ in found(find, log(code))]
        for code in (13, 31, 43, 48, 62, 74, 119)
    }
    assert named == {
        13: [], 31: [], 43: [], 48: ["gpu_ecc_error"], 62: ["gpu_hardware_fault"], 74: ["nvlink_error"],
        119: ["gsp_firmware_timeout"],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("reasons", "heat", "brake"),
    [
        (("gpu_idle",), False, False),
        (("sw_power_cap",), False, False),
        (("sw_thermal",), True, False),
        (("hw_slowdown", "hw_thermal"), True, False),
        (("hw_slowdown", "hw_power_brake"), False, True),
        (("hw_slowdown",), False, True),
    ],
)
def test_clocks_are_cut_by_heat_or_by_power(reasons, heat, brake):
    facts = machine(gpu(throttle_reasons=reasons))
    assert bool(found(hardware.find_heat, facts)) is heat
    assert bool(found(hardware.find_power_brake, facts)) is brake


@pytest.mark.parametrize(
    ("link", "use", "state", "degraded"),
    [
        (Link(generation=1, generation_max=5, width=16, width_max=16), 0, 8, False),
        (Link(generation=1, generation_max=5, width=16, width_max=16), 99, 0, True),
        (Link(generation=5, generation_max=5, width=16, width_max=16), 99, 0, False),
        (Link(generation=1, generation_max=4, width=8, width_max=16), 0, 8, True),
        (Link(generation=4, generation_max=4, generation_gpu_max=5, width=8, width_max=8), 99, 0, False),
    ],
)
def test_a_link_is_judged_by_width_and_under_load_by_speed(link, use, state, degraded):
    facts = machine(gpu(link=link, utilization_percent=use, performance_state=state))
    assert bool(found(hardware.find_link, facts)) is degraded


def test_nvlinks_are_compared_with_their_likes():
    assert found(hardware.find_nvlink, machine(gpu(0), gpu(1))) == []
    assert found(hardware.find_nvlink, machine(gpu(0), gpu(1, nvlink_active=12))) == [("nvlink_error", "warning")]
    assert found(hardware.find_nvlink, machine(gpu(0, nvlink_active=0), gpu(1, nvlink_active=0))) == []


def test_memory_of_the_dead_is_seen_only_where_all_processes_are():
    dead = (GpuProcess(pid=9, memory_bytes=GIB, alive=False),)
    facts = machine(gpu(processes=dead))
    assert found(hardware.find_orphaned_memory, facts) == [("gpu_memory_orphaned", "warning")]
    inside = changed(facts, "container.kind", "docker")
    assert ask(hardware.find_orphaned_memory, inside) == [
        Skip("the processes of other containers cannot be seen from here")
    ]


def test_a_gpu_in_use_is_information():
    use = (GpuProcess(pid=9, memory_bytes=70 * GIB, name="python", alive=True),)
    facts = machine(gpu(processes=use, memory_free_bytes=9 * GIB))
    assert found(hardware.find_other_process, facts) == [("oom_other_process", "info")]


def test_fewer_gpus_than_expected():
    assert found(hardware.find_fewer_gpus, machine(), num_gpus=2) == [("fewer_gpus_than_expected", "broken")]
    assert found(hardware.find_fewer_gpus, machine(), num_gpus=1) == []
    assert found(hardware.find_fewer_gpus, machine()) == []


@pytest.mark.parametrize(
    ("text", "address", "expected"),
    [
        ("severity=Uncorrectable (Fatal)", "0000:10:00.0", [("pcie_bus_errors", "warning")]),
        ("severity=Corrected", "0000:10:00.0", []),
        ("severity=Uncorrectable (Fatal)", "0000:99:00.0", []),
    ],
)
def test_errors_of_the_bus_count_when_uncorrected_and_at_a_gpu(text, address, expected):
    event = KernelEvent(kind="aer", text=text, pci_address=address)
    assert found(hardware.find_bus_errors, replace(machine(), kernel_log=(event,))) == expected


def test_a_lowered_power_limit_is_information():
    lowered = machine(gpu(power_limit_w=400.0, power_limit_default_w=700.0))
    assert found(hardware.find_lowered_power, lowered) == [("power_limit_lowered", "info")]
    assert found(hardware.find_lowered_power, machine(gpu(power_limit_w=700.0, power_limit_default_w=700.0))) == []


def test_repair_and_recovery():
    assert found(hardware.find_fault, machine(gpu(rows_remap_failed=True))) == [("gpu_hardware_fault", "broken")]
    assert found(hardware.find_fault, machine(gpu(repair_pending=True))) == [("gpu_hardware_fault", "warning")]
    assert found(hardware.find_reset, machine(gpu(recovery_action=2))) == [("gpu_needs_reset", "broken")]
    assert found(hardware.find_licence, machine(gpu(licensed=False))) == [("vgpu_unlicensed", "broken")]
