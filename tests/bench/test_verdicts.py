from dataclasses import replace

import pytest

from gpudoc.bench.run import judge
from gpudoc.bench.verdicts import best_rows, find_causes
from gpudoc.doctor.registry import CATALOGUE
from gpudoc.facts.model import Gpu, PciDevice
from tests.bench.builders import H100, machine, row, situation, with_link

UNDER_LOAD = {"link_generation_max": 5.0, "link_width_max": 16.0, "gpu_processes_max": 1.0}


def copy(value, host="pinned", size=256 << 20, **context):
    return row("h2d", value=value, parameters={"bytes": size, "host": host}, context={**UNDER_LOAD, **context})


def product(value, dtype="bf16", **context):
    clock = {"sm_clock_mhz": 1900.0, "gpu_processes_max": 1.0}
    parameters = {"dtype": dtype, "shape": "8448x8192x8192", "mode": "sustained"}
    return row("matmul", value=value, unit="TFLOP/s", parameters=parameters, context={**clock, **context})


def verdict(*rows, machine_=None, **environment):
    return find_causes(judge(situation(rows, machine_, **environment)))


def test_normal_figures_have_no_finding():
    assert verdict(copy(56.0), copy(4.0, size=65536), product(750.0)) == ()


def test_a_low_copy_names_the_link_that_was_seen_under_load():
    (found,) = verdict(copy(25.0, link_width_max=8.0))
    assert found.id == "pcie_link_degraded"
    assert found.severity == "warning"
    assert "40% of the ceiling" in found.evidence[0].value


def test_the_best_row_of_a_kind_is_judged_not_the_small_sizes():
    rows = judge(situation([copy(4.0, size=65536), copy(56.0)])).rows
    assert [one.value for one in best_rows(situation(rows))] == [56.0]


def test_older_links_may_reach_less_before_they_are_low():
    gen4 = machine(with_link(generation_max=4, generation_gpu_max=4))
    assert verdict(copy(24.5, link_generation_max=4.0), machine_=gen4) == ()
    assert verdict(copy(23.0, link_generation_max=4.0), machine_=gen4)[0].id == "cause_not_found"


def test_without_evidence_the_cause_is_not_found_and_what_to_look_at_is_named():
    (found,) = verdict(copy(30.0))
    assert found.id == "cause_not_found"
    assert "lspci" in found.fix[0].say
    assert found.confidence < 0.5


# a data sheet's peak is at the highest clock, which these cards hold only for moments at the power they came with
STOCK = [
    (Gpu(index=0, name="Tesla T4", brand="tesla", capability=(7, 5), sm_clock_max_mhz=1590), 0x1EB8, 40, 900.0, "fp16"),
    (
        Gpu(index=0, name="NVIDIA L4", brand="nvidia", capability=(8, 9), sm_clock_max_mhz=2040),
        0x27B8,
        58,
        1100.0,
        "bf16",
    ),
    (
        Gpu(index=0, name="NVIDIA H100 PCIe", brand="nvidia", capability=(9, 0), sm_clock_max_mhz=1755),
        0x2331,
        114,
        1000.0,
        "bf16",
    ),
]


@pytest.mark.parametrize(("gpu", "device_id", "sms", "mhz", "dtype"), STOCK, ids=lambda one: getattr(one, "name", ""))
@pytest.mark.parametrize(("limit_w", "severities"), [(70.0, ["info"]), (50.0, ["warning"])])
def test_a_card_at_the_power_that_it_came_with_is_not_low(gpu, device_id, sms, mhz, dtype, limit_w, severities):
    gpu = replace(gpu, pci_address="0000:18:00.0", power_limit_w=limit_w, power_limit_default_w=70.0)
    bus = PciDevice(address="0000:18:00.0", vendor_id=0x10DE, device_id=device_id, class_code=0x030200)
    capped = {"throttled_sw_power_cap_share": 1.0, "sm_clock_mhz": mhz}
    peak = judge(situation([product(1.0, dtype, **capped)], replace(machine(gpu), pci=(bus,)), sm_count=sms)).rows[0]
    value = 0.9 * peak.ceiling.at_measured_clock
    assert value < 0.65 * peak.ceiling.value
    scene = replace(machine(gpu), pci=(bus,))
    found = [
        one
        for one in verdict(product(value, dtype, **capped), machine_=scene, sm_count=sms)
        if one.id in ("power_limit_reached", "power_limit_lowered")
    ]
    assert [one.severity for one in found] == severities


def test_power_at_its_default_does_not_explain_what_is_low_even_for_the_clock():
    capped = product(300.0, throttled_sw_power_cap_share=1.0, sm_clock_mhz=1400.0)
    assert [one.id for one in verdict(capped)] == ["cause_not_found", "power_limit_reached"]
    assert [one.id for one in verdict(product(560.0, throttled_sw_power_cap_share=1.0, sm_clock_mhz=1400.0))] == [
        "power_limit_reached"
    ]


def test_a_finding_has_the_reason_and_the_steps_of_its_row_for_the_card_that_was_measured():
    lowered = machine(replace(H100, power_limit_w=450.0, power_limit_default_w=700.0))
    (found,) = verdict(product(500.0, throttled_sw_power_cap_share=1.0, sm_clock_mhz=1400.0), machine_=lowered)
    assert found.why == CATALOGUE["power_limit_lowered"].why
    assert found.fix[0].run == "nvidia-smi -i 0 -q -d POWER"
    assert found.fix[-1].say.startswith("Restore the GPU's default power limit")


def test_a_low_product_is_explained_by_heat():
    (found,) = verdict(product(500.0, throttled_hw_thermal_share=0.8, sm_clock_mhz=1000.0))
    assert found.id == "thermal_throttle"
    assert any("sm_clock" in one.fact for one in found.evidence)


def test_8_bit_products_may_reach_less_before_they_are_low():
    ceiling = 132 * 4096 * 2 * 1980 / 1e6
    assert verdict(product(0.55 * ceiling, dtype="fp8")) == ()
    assert verdict(product(0.45 * ceiling, dtype="fp8"))[0].id == "cause_not_found"
    assert verdict(product(0.55 * ceiling / 2, dtype="bf16"))[0].id == "cause_not_found"


def test_two_rows_with_one_cause_are_one_finding_with_both_as_evidence():
    hot = {"throttled_hw_thermal_share": 0.8, "sm_clock_mhz": 1000.0}
    (found,) = verdict(product(500.0, **hot), product(500.0, dtype="fp16", **hot))
    assert len([one for one in found.evidence if one.fact.startswith("bench.matmul")]) == 2


def test_a_half_rate_card_at_its_own_peak_is_not_low():
    geforce = machine(replace(H100, brand="geforce", capability=(8, 9), sm_clock_max_mhz=2520))
    findings = verdict(product(150.0, sm_clock_mhz=2500.0), machine_=geforce, sm_count=128)
    assert [found.id for found in findings] == ["half_rate_accumulation"]
    assert findings[0].severity == "info"


def test_corrupted_data_comes_first_and_is_broken():
    wrong = replace(copy(56.0), corrupted="the copy of 4096 bytes differs from its source")
    findings = verdict(copy(25.0, host="pinned", link_width_max=8.0), replace(wrong, name="d2h"))
    assert [found.severity for found in findings] == ["broken", "warning"]
    assert findings[0].id == "data_corrupted"


def test_pageable_and_small_paths_have_no_normal():
    assert verdict(copy(3.0, host="pageable"), row("launch_queued", value=9.0)) == ()


@pytest.mark.parametrize(("value", "expected"), [(200.0, []), (60.0, ["cpu_busy"])])
def test_a_cpu_is_low_with_its_cause(value, expected):
    clock = row("cpu_clock", "cpu", 3.5, context={"fp32_fma_per_cycle": 16.0})
    parameters = {"dtype": "fp32", "threads": 2, "size": 1024}
    measured = row("cpu_matmul", "cpu", value, parameters=parameters, context={"other_cpus_max": 1.2})
    findings = find_causes(judge(situation([clock, measured], machine(gpu=None), device="cpu")))
    assert [found.id for found in findings] == expected


def test_a_refused_value_is_no_verdict():
    assert verdict(copy(457.0)) == ()
