"""The health of each GPU by its own counters: memory errors, resets that are due, heat, power, pending changes."""

from __future__ import annotations

from typing import NamedTuple

from gpudoc.doctor.causes.per_gpu import GpuCheck, Seen, Sign, flag
from gpudoc.doctor.model import Finder
from gpudoc.facts.model import Absent

# NVML_GPU_RECOVERY_ACTION_*: https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/error-recovery-and-response-flags.html
_RECOVERY = {
    1: "reset the GPU", 2: "reboot the node", 3: "drain peer-to-peer traffic", 4: "drain and reset the GPU",
    5: "recover the IMEX domain", 6: "reset the PCIe bus", 7: "reboot the system",
}  # fmt: skip
_LOWERED, _HALVED = 0.9, 0.5
_LONG_HOT_S = 3600.0


class _NewErrors(NamedTuple):
    ecc_uncorrected_volatile: int


def _judge_new_errors(gpu: _NewErrors) -> Seen | None:
    count = gpu.ecc_uncorrected_volatile
    text = f"{count} uncorrectable memory errors since the driver was loaded"
    return Seen(text=text, confidence=0.95) if count else None


class _ErrorsAndRows(NamedTuple):
    ecc_uncorrected_volatile: int
    rows_remap_pending: bool


def _judge_errors_and_rows(gpu: _ErrorsAndRows) -> Seen | None:
    """Errors in rows that are still in use go on until the reset."""
    if gpu.ecc_uncorrected_volatile and gpu.rows_remap_pending:
        return Seen(text="the rows with errors are in use until a reset", severity="broken", confidence=0.95)
    return None


class _ErrorsAndPages(NamedTuple):
    ecc_uncorrected_volatile: int
    retired_pages_pending: bool


def _judge_errors_and_pages(gpu: _ErrorsAndPages) -> Seen | None:
    if gpu.ecc_uncorrected_volatile and gpu.retired_pages_pending:
        return Seen(text="the pages with errors are in use until a reset", severity="broken", confidence=0.95)
    return None


class _PastErrors(NamedTuple):
    ecc_uncorrected_aggregate: int


def _judge_past_errors(gpu: _PastErrors) -> Seen | None:
    count = gpu.ecc_uncorrected_aggregate
    text = f"{count} uncorrectable memory errors in the card's life"
    return Seen(text=text, severity="info", title=text) if count else None


class _Recovery(NamedTuple):
    recovery_action: int


def _judge_recovery(gpu: _Recovery) -> Seen | None:
    action = gpu.recovery_action
    text = f"recovery action {action}: {_RECOVERY.get(action, 'not known here')}"
    return Seen(text=text, severity="broken", confidence=0.96) if action else None


class _Reasons(NamedTuple):
    throttle_reasons: tuple[str, ...]


def _judge_heat(gpu: _Reasons) -> Seen | None:
    """The software power cap under load is how GPUs work; heat is not."""
    reasons = sorted({"sw_thermal", "hw_thermal"} & set(gpu.throttle_reasons))
    return Seen(text=", ".join(reasons), confidence=0.93) if reasons else None


class _Temperature(NamedTuple):
    temperature_c: int
    temperature_slowdown_c: int


def _judge_temperature(gpu: _Temperature) -> Seen | None:
    text = f"{gpu.temperature_c} °C, and it slows down at {gpu.temperature_slowdown_c} °C"
    return Seen(text=text) if gpu.temperature_c >= gpu.temperature_slowdown_c else None


class _Margin(NamedTuple):
    temperature_margin_c: int


def _judge_margin(gpu: _Margin) -> Seen | None:
    text = f"{gpu.temperature_margin_c} °C left until it slows down"
    return Seen(text=text) if gpu.temperature_margin_c <= 0 else None


class _HotTime(NamedTuple):
    thermal_slowdown_ns: int


def _judge_hot_time(gpu: _HotTime) -> Seen | None:
    """The counter starts when the driver is loaded; what it does not say is when the hot hours were."""
    hot_s = gpu.thermal_slowdown_ns / 1e9
    text = f"clocks were cut by heat for {hot_s / 3600:.1f} h since the driver was loaded"
    return Seen(text=text, confidence=0.8, title=text) if hot_s >= _LONG_HOT_S else None


def _judge_brake(gpu: _Reasons) -> Seen | None:
    reasons = set(gpu.throttle_reasons)
    if "hw_power_brake" in reasons or ("hw_slowdown" in reasons and "hw_thermal" not in reasons):
        return Seen(text=", ".join(sorted(reasons & {"hw_power_brake", "hw_slowdown"})))
    return None


class _PowerLimit(NamedTuple):
    power_limit_w: float
    power_limit_default_w: float


def _judge_power_limit(gpu: _PowerLimit) -> Seen | Absent | None:
    """Somewhat lower is often meant; less than half cuts the clocks of every training."""
    if not gpu.power_limit_default_w:
        return Absent("power_limit_default_w: the driver says 0 W")
    share = gpu.power_limit_w / gpu.power_limit_default_w
    text = f"power limit {gpu.power_limit_w:.0f} W, the card's own is {gpu.power_limit_default_w:.0f} W"
    return Seen(text=text, severity="warning" if share < _HALVED else "info", title=text) if share < _LOWERED else None


class _Virtual(NamedTuple):
    virtualization: str


class _Licence(NamedTuple):
    licensed: bool


def _judge_licence(gpu: _Licence) -> Seen | None:
    text = "virtual GPU, not licensed"
    return None if gpu.licensed else Seen(text=text, severity="broken", confidence=0.95)


class _Mig(NamedTuple):
    mig_enabled: bool
    mig_pending: bool


def _judge_mig(gpu: _Mig) -> Seen | None:
    return _change("MIG", gpu.mig_enabled, gpu.mig_pending)


class _Ecc(NamedTuple):
    ecc_enabled: bool
    ecc_pending: bool


def _judge_ecc(gpu: _Ecc) -> Seen | None:
    return _change("ECC", gpu.ecc_enabled, gpu.ecc_pending)


def _change(mode: str, now: bool, then: bool) -> Seen | None:
    words = {True: "on", False: "off"}
    text = f"{mode} is {words[now]} and will be {words[then]} after the next reset"
    return Seen(text=text, confidence=0.95, title=text) if now is not then else None


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
            Sign(facts=_NewErrors, judge=_judge_new_errors),
            flag("rows_remap_pending", _WAITING_ROWS),
            flag("retired_pages_pending", _WAITING_PAGES),
            Sign(facts=_ErrorsAndRows, judge=_judge_errors_and_rows),
            Sign(facts=_ErrorsAndPages, judge=_judge_errors_and_pages),
            flag("sram_threshold_exceeded", _SRAM),
        ),
    ),
    GpuCheck(cause="gpu_past_memory_errors", signs=(Sign(facts=_PastErrors, judge=_judge_past_errors),)),
    GpuCheck(
        cause="gpu_hardware_fault",
        signs=(flag("rows_remap_failed", _NO_SPARE), flag("repair_pending", _REPAIR)),
    ),
    GpuCheck(cause="gpu_needs_reset", signs=(Sign(facts=_Recovery, judge=_judge_recovery),)),
    GpuCheck(
        cause="thermal_throttle",
        signs=(
            Sign(
                facts=_Reasons,
                judge=_judge_heat,
                shown=("temperature_c", "temperature_slowdown_c", "sm_clock_mhz", "sm_clock_max_mhz"),
            ),
            Sign(facts=_Temperature, judge=_judge_temperature),
            Sign(facts=_Margin, judge=_judge_margin),
            Sign(facts=_HotTime, judge=_judge_hot_time),
        ),
    ),
    GpuCheck(cause="power_brake", signs=(Sign(facts=_Reasons, judge=_judge_brake),)),
    GpuCheck(cause="power_limit_lowered", signs=(Sign(facts=_PowerLimit, judge=_judge_power_limit),)),
    GpuCheck(
        cause="vgpu_unlicensed",
        signs=(Sign(facts=_Licence, judge=_judge_licence),),
        only=(_Virtual, lambda gpu: gpu.virtualization == "vgpu"),
    ),
    GpuCheck(
        cause="gpu_mode_change_pending",
        signs=(Sign(facts=_Mig, judge=_judge_mig), Sign(facts=_Ecc, judge=_judge_ecc)),
    ),
)

FINDERS: tuple[Finder, ...] = (*(check.text_finder() for check in CHECKS), *(check.finder() for check in CHECKS))
