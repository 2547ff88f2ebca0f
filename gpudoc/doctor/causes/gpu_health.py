"""Judge each GPU's health by its own counters: memory errors, due resets, heat, power, pending changes."""

from __future__ import annotations

from gpudoc.doctor.causes.per_gpu import GpuCheck, Seen, Sign, flag
from gpudoc.doctor.model import Finder
from gpudoc.facts.model import Absent

# NVML_GPU_RECOVERY_ACTION_*: https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/error-recovery-and-response-
# flags.html
_RECOVERY = {
    1: "reset the GPU", 2: "reboot the node", 3: "drain peer-to-peer traffic", 4: "drain and reset the GPU",
    5: "recover the IMEX domain", 6: "reset the PCIe bus", 7: "reboot the system",
}  # fmt: skip
_LOWERED, _HALVED = 0.9, 0.5
_LONG_HOT_S = 3600.0


def _judge_new_errors(ecc_uncorrected_volatile: int) -> Seen | None:
    text = f"{ecc_uncorrected_volatile} uncorrectable memory errors since the driver was loaded"
    return Seen(text=text, confidence=0.95) if ecc_uncorrected_volatile else None


def _flag_in_use(what: str, pending: str) -> Sign:
    """The sign of errors in rows or pages that stay in use until the reset."""
    seen = Seen(text=f"the {what} with errors are in use until a reset", severity="broken", confidence=0.95)

    def judge(errors: int, is_pending: bool) -> Seen | None:
        return seen if errors and is_pending else None

    return Sign(judge, names=("ecc_uncorrected_volatile", pending))


def _judge_past_errors(ecc_uncorrected_aggregate: int) -> Seen | None:
    text = f"{ecc_uncorrected_aggregate} uncorrectable memory errors in the card's life"
    return Seen(text=text, severity="info", title=text) if ecc_uncorrected_aggregate else None


def _judge_recovery(recovery_action: int) -> Seen | None:
    text = f"recovery action {recovery_action}: {_RECOVERY.get(recovery_action, 'not known here')}"
    return Seen(text=text, severity="broken", confidence=0.96) if recovery_action else None


def _judge_heat(throttle_reasons: tuple[str, ...]) -> Seen | None:
    """The sign of heat; the software power cap under load is not one, since GPUs normally reach it."""
    reasons = sorted({"sw_thermal", "hw_thermal"} & set(throttle_reasons))
    return Seen(text=", ".join(reasons), confidence=0.93) if reasons else None


def _judge_temperature(temperature_c: int, temperature_slowdown_c: int) -> Seen | None:
    text = f"{temperature_c} °C, and it slows down at {temperature_slowdown_c} °C"
    return Seen(text=text) if temperature_c >= temperature_slowdown_c else None


def _judge_margin(temperature_margin_c: int) -> Seen | None:
    text = f"{temperature_margin_c} °C below the point where it slows down"
    return Seen(text=text) if temperature_margin_c <= 0 else None


def _judge_hot_time(thermal_slowdown_ns: int) -> Seen | None:
    """The sign of long heat: the counter starts when the driver is loaded, but does not say when the hot hours were."""
    hot_s = thermal_slowdown_ns / 1e9
    text = f"clocks were cut by heat for {hot_s / 3600:.1f} h since the driver was loaded"
    return Seen(text=text, confidence=0.8, title=text) if hot_s >= _LONG_HOT_S else None


def _judge_brake(throttle_reasons: tuple[str, ...]) -> Seen | None:
    reasons = set(throttle_reasons)
    if "hw_power_brake" in reasons or ("hw_slowdown" in reasons and "hw_thermal" not in reasons):
        return Seen(text=", ".join(sorted(reasons & {"hw_power_brake", "hw_slowdown"})))
    return None


def _judge_power_limit(power_limit_w: float, power_limit_default_w: float) -> Seen | Absent | None:
    """The sign of a lowered power limit: a slightly lower one is often intended; below half, every training slows."""
    if not power_limit_default_w:
        return Absent("power_limit_default_w: the driver says 0 W")
    share = power_limit_w / power_limit_default_w
    text = f"power limit {power_limit_w:.0f} W, the card's own is {power_limit_default_w:.0f} W"
    return Seen(text=text, severity="warning" if share < _HALVED else "info", title=text) if share < _LOWERED else None


def _is_virtual(virtualization: str) -> bool:
    return virtualization == "vgpu"


def _judge_licence(licensed: bool) -> Seen | None:
    text = "virtual GPU without a licence"
    return None if licensed else Seen(text=text, severity="broken", confidence=0.95)


def _flag_change(mode: str) -> Sign:
    def judge(now: bool, then: bool) -> Seen | None:
        words = {True: "on", False: "off"}
        text = f"{mode} is {words[now]} and will be {words[then]} after the next reset"
        return Seen(text=text, confidence=0.95, title=text) if now is not then else None

    return Sign(judge, names=(f"{mode.lower()}_enabled", f"{mode.lower()}_pending"))


_WAITING_ROWS = Seen(text="memory rows wait for a reset to be replaced", confidence=0.95)
_WAITING_PAGES = Seen(text="memory pages wait for a reset to be retired", confidence=0.95)

_SRAM = Seen(text="uncorrectable SRAM errors beyond the threshold for replacement", severity="broken", confidence=0.95)
_NO_SPARE = Seen(text="a memory row could not be replaced: no spare is left", severity="broken", confidence=0.96)
_REPAIR = Seen(text="a repair of a memory channel or a compute unit is pending", confidence=0.96)

CHECKS: tuple[GpuCheck, ...] = (
    GpuCheck(
        cause="gpu_ecc_error",
        told="broken",
        signs=(
            Sign(_judge_new_errors),
            flag("rows_remap_pending", _WAITING_ROWS),
            flag("retired_pages_pending", _WAITING_PAGES),
            _flag_in_use("rows", "rows_remap_pending"),
            _flag_in_use("pages", "retired_pages_pending"),
            flag("sram_threshold_exceeded", _SRAM),
        ),
    ),
    GpuCheck(cause="gpu_past_memory_errors", signs=(Sign(_judge_past_errors),)),
    GpuCheck(cause="gpu_hardware_fault", signs=(flag("rows_remap_failed", _NO_SPARE), flag("repair_pending", _REPAIR))),
    GpuCheck(cause="gpu_needs_reset", signs=(Sign(_judge_recovery),)),
    GpuCheck(
        cause="thermal_throttle",
        signs=(
            Sign(_judge_heat, shown=("temperature_c", "temperature_slowdown_c", "sm_clock_mhz", "sm_clock_max_mhz")),
            Sign(_judge_temperature),
            Sign(_judge_margin),
            Sign(_judge_hot_time),
        ),
    ),
    GpuCheck(cause="power_brake", signs=(Sign(_judge_brake),)),
    GpuCheck(cause="power_limit_lowered", signs=(Sign(_judge_power_limit),)),
    GpuCheck(cause="vgpu_unlicensed", signs=(Sign(_judge_licence),), only=_is_virtual),
    GpuCheck(cause="gpu_mode_change_pending", signs=(_flag_change("MIG"), _flag_change("ECC"))),
)

FINDERS: tuple[Finder, ...] = (*(check.text_finder() for check in CHECKS), *(check.finder() for check in CHECKS))
