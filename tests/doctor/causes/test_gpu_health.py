import pytest

from gpudoc.doctor.causes.gpu_health import FINDERS
from gpudoc.facts.model import NOT_SUPPORTED, Absent
from tests.doctor.causes.judge import finds
from tests.machines.built import ask, gpu, machine

FIND = {finder.id: finder.find for finder in FINDERS}
ECC, HEAT, BRAKE, LIMIT = (
    FIND[name] for name in ("gpu_ecc_error", "thermal_throttle", "power_brake", "power_limit_lowered")
)
HOUR_NS = 3600 * 10**9


def one(**changes):
    return machine(gpu(**changes))


def cut(*reasons):
    return one(throttle_reasons=reasons)


test_memory_errors_by_what_they_call_for = finds([
    (ECC, one(), ""),
    (ECC, one(ecc_corrected_aggregate=900), ""),
    (ECC, one(ecc_uncorrected_volatile=1), "gpu_ecc_error warning"),
    (ECC, one(rows_remap_pending=True), "gpu_ecc_error warning"),
    (ECC, one(retired_pages_pending=True), "gpu_ecc_error warning"),
    (ECC, one(ecc_uncorrected_volatile=1, rows_remap_pending=True), "gpu_ecc_error broken"),
    (ECC, one(ecc_uncorrected_volatile=1, retired_pages_pending=True), "gpu_ecc_error broken"),
    (ECC, one(sram_threshold_exceeded=True), "gpu_ecc_error broken"),
    # a sign that the card does not have leaves the others to decide
    (ECC, one(retired_pages_pending=Absent(NOT_SUPPORTED)), ""),
])  # fmt: skip
test_clocks_are_cut_by_heat_or_by_power = finds([
    *((HEAT, cut(*reasons), "") for reasons in (("gpu_idle",), ("sw_power_cap",), ("hw_slowdown", "hw_power_brake"), ("hw_slowdown",))),
    *((HEAT, cut(*reasons), "thermal_throttle warning") for reasons in (("sw_thermal",), ("hw_slowdown", "hw_thermal"))),
    *((BRAKE, cut(*reasons), "") for reasons in (("gpu_idle",), ("sw_power_cap",), ("sw_thermal",), ("hw_slowdown", "hw_thermal"))),
    *((BRAKE, cut(*reasons), "power_brake warning") for reasons in (("hw_slowdown", "hw_power_brake"), ("hw_slowdown",))),
])  # fmt: skip
test_heat_is_seen_without_a_flag = finds([
    (HEAT, one(temperature_c=86, temperature_slowdown_c=87), ""),
    (HEAT, one(temperature_c=91, temperature_slowdown_c=87), "thermal_throttle warning"),
    (HEAT, one(temperature_margin_c=1), ""),
    (HEAT, one(temperature_margin_c=0), "thermal_throttle warning"),
    (HEAT, one(thermal_slowdown_ns=HOUR_NS - 1), ""),
    (HEAT, one(thermal_slowdown_ns=HOUR_NS), "thermal_throttle warning"),
])  # fmt: skip
test_repair_recovery_and_licence = finds([
    (FIND["gpu_hardware_fault"], one(rows_remap_failed=True), "gpu_hardware_fault broken"),
    (FIND["gpu_hardware_fault"], one(repair_pending=True), "gpu_hardware_fault warning"),
    (FIND["gpu_needs_reset"], one(recovery_action=2), "gpu_needs_reset broken"),
    # a licence is asked of virtual GPUs alone
    (FIND["vgpu_unlicensed"], one(licensed=False), ""),
    (FIND["vgpu_unlicensed"], one(virtualization="vgpu", licensed=False), "vgpu_unlicensed broken"),
])  # fmt: skip


@pytest.mark.parametrize(
    ("cause", "changes", "severity", "title"),
    [
        ("gpu_past_memory_errors", {"ecc_uncorrected_aggregate": 9}, "info", "9 uncorrectable memory errors in the card's life"),
        ("thermal_throttle", {"thermal_slowdown_ns": 2 * HOUR_NS}, "warning", "clocks were cut by heat for 2.0 h since the driver was loaded"),
        ("gpu_mode_change_pending", {"mig_enabled": False, "mig_pending": True}, "warning", "MIG is off and will be on after the next reset"),
        ("gpu_mode_change_pending", {"ecc_enabled": True, "ecc_pending": False}, "warning", "ECC is on and will be off after the next reset"),
        # a limit is judged by what it leaves
        ("power_limit_lowered", {"power_limit_w": 600.0}, "info", "power limit 600 W, the card's own is 700 W"),
        ("power_limit_lowered", {"power_limit_w": 400.0}, "info", "power limit 400 W, the card's own is 700 W"),
        ("power_limit_lowered", {"power_limit_w": 300.0}, "warning", "power limit 300 W, the card's own is 700 W"),
    ],
)  # fmt: skip
def test_what_is_found_is_told_with_its_numbers_and_its_gpu(cause, changes, severity, title):
    (finding,) = ask(FIND[cause], machine(gpu(0), gpu(1, **changes)))
    assert (finding.severity, finding.title) == (severity, f"GPU 1: {title}")
    assert [card.index for card in finding.cards] == [1]


test_a_limit_near_the_cards_own_is_none = finds([(LIMIT, one(power_limit_w=watts), "") for watts in (700.0, 630.0)])


@pytest.mark.parametrize(
    ("find", "changes", "because"),
    [
        (LIMIT, {"power_limit_default_w": 0.0}, "power_limit_default_w: the driver says 0 W"),
        (ECC, {"retired_pages_pending": Absent("no permission")}, "retired_pages_pending: no permission"),
        # a card without ECC is no fault
        (ECC, dict.fromkeys(("ecc_uncorrected_volatile", "rows_remap_pending", "retired_pages_pending", "sram_threshold_exceeded"), Absent(NOT_SUPPORTED)), f"ecc_uncorrected_volatile: {NOT_SUPPORTED}"),
    ],
)  # fmt: skip
def test_what_cannot_be_judged_is_not_checked_and_says_why(find, changes, because):
    (skip,) = ask(find, machine(gpu(0), gpu(1, **changes)))
    assert skip.because == f"GPU 1: {because}"
