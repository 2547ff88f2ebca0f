from __future__ import annotations

import pytest

from gpudoc.doctor.causes.gpu_health import FINDERS
from gpudoc.facts.model import NOT_SUPPORTED, Absent
from tests.machines.built import ask, found, gpu, machine

FIND = {finder.id: finder.find for finder in FINDERS}
HOUR_NS = 3600 * 10**9


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"ecc_corrected_aggregate": 900}, []),
        ({"ecc_uncorrected_volatile": 1}, [("gpu_ecc_error", "warning")]),
        ({"rows_remap_pending": True}, [("gpu_ecc_error", "warning")]),
        ({"retired_pages_pending": True}, [("gpu_ecc_error", "warning")]),
        ({"ecc_uncorrected_volatile": 1, "rows_remap_pending": True}, [("gpu_ecc_error", "broken")]),
        ({"ecc_uncorrected_volatile": 1, "retired_pages_pending": True}, [("gpu_ecc_error", "broken")]),
        ({"sram_threshold_exceeded": True}, [("gpu_ecc_error", "broken")]),
    ],
)
def test_memory_errors_by_what_they_call_for(changes, expected):
    assert found(FIND["gpu_ecc_error"], machine(gpu(**changes))) == expected


def test_errors_in_the_cards_life_are_information_with_their_number():
    (finding,) = ask(FIND["gpu_past_memory_errors"], machine(gpu(0), gpu(1, ecc_uncorrected_aggregate=9)))
    assert (finding.severity, finding.title) == ("info", "GPU 1: 9 uncorrectable memory errors in the card's life")
    assert [card.index for card in finding.cards] == [1]


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
    assert bool(found(FIND["thermal_throttle"], facts)) is heat
    assert bool(found(FIND["power_brake"], facts)) is brake


@pytest.mark.parametrize(
    ("changes", "hot"),
    [
        ({"temperature_c": 86, "temperature_slowdown_c": 87}, False),
        ({"temperature_c": 91, "temperature_slowdown_c": 87}, True),
        ({"temperature_margin_c": 1}, False),
        ({"temperature_margin_c": 0}, True),
        ({"thermal_slowdown_ns": HOUR_NS - 1}, False),
        ({"thermal_slowdown_ns": HOUR_NS}, True),
    ],
)
def test_heat_is_seen_without_a_flag(changes, hot):
    expected = [("thermal_throttle", "warning")] if hot else []
    assert found(FIND["thermal_throttle"], machine(gpu(**changes))) == expected


def test_hours_of_heat_say_since_when_they_count():
    (finding,) = ask(FIND["thermal_throttle"], machine(gpu(thermal_slowdown_ns=2 * HOUR_NS)))
    assert finding.title == "GPU 0: clocks were cut by heat for 2.0 h since the driver was loaded"


@pytest.mark.parametrize(
    ("limit", "severity"), [(700.0, None), (630.0, None), (600.0, "info"), (400.0, "info"), (300.0, "warning")]
)
def test_a_power_limit_is_judged_by_what_is_left(limit, severity):
    answers = ask(FIND["power_limit_lowered"], machine(gpu(power_limit_w=limit, power_limit_default_w=700.0)))
    assert [finding.severity for finding in answers] == ([severity] if severity else [])
    if answers:
        assert answers[0].title == f"GPU 0: power limit {limit:.0f} W, the card's own is 700 W"


def test_a_limit_of_nothing_is_no_limit_to_judge_by():
    (skip,) = ask(FIND["power_limit_lowered"], machine(gpu(power_limit_default_w=0.0)))
    assert skip.because == "GPU 0: power_limit_default_w: the driver says 0 W"


def test_repair_and_recovery():
    assert found(FIND["gpu_hardware_fault"], machine(gpu(rows_remap_failed=True))) == [("gpu_hardware_fault", "broken")]
    assert found(FIND["gpu_hardware_fault"], machine(gpu(repair_pending=True))) == [("gpu_hardware_fault", "warning")]
    assert found(FIND["gpu_needs_reset"], machine(gpu(recovery_action=2))) == [("gpu_needs_reset", "broken")]


def test_a_licence_is_asked_of_virtual_gpus_alone():
    assert ask(FIND["vgpu_unlicensed"], machine(gpu(licensed=False))) == []
    unlicensed = machine(gpu(virtualization="vgpu", licensed=False))
    assert found(FIND["vgpu_unlicensed"], unlicensed) == [("vgpu_unlicensed", "broken")]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"mig_enabled": False, "mig_pending": True}, "GPU 0: MIG is off and will be on after the next reset"),
        ({"ecc_enabled": True, "ecc_pending": False}, "GPU 0: ECC is on and will be off after the next reset"),
    ],
)
def test_a_change_that_waits_for_a_reset_is_told(changes, says):
    (finding,) = ask(FIND["gpu_mode_change_pending"], machine(gpu(**changes)))
    assert (finding.severity, finding.title) == ("warning", says)


def test_a_card_without_ecc_is_no_fault_and_not_checked():
    absent = Absent(NOT_SUPPORTED)
    geforce = gpu(ecc_uncorrected_volatile=absent, rows_remap_pending=absent, retired_pages_pending=absent,
                  sram_threshold_exceeded=absent)  # fmt: skip
    (skip,) = ask(FIND["gpu_ecc_error"], machine(geforce))
    assert skip.because == f"GPU 0: ecc_uncorrected_volatile: {NOT_SUPPORTED}"


def test_a_sign_that_the_card_does_not_have_leaves_the_others_to_decide():
    assert ask(FIND["gpu_ecc_error"], machine(gpu(retired_pages_pending=Absent(NOT_SUPPORTED)))) == []
    (skip,) = ask(FIND["gpu_ecc_error"], machine(gpu(0), gpu(1, retired_pages_pending=Absent("no permission"))))
    assert skip.because == "GPU 1: retired_pages_pending: no permission"
