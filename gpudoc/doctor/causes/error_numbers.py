"""The numbers of CUDA's and NVML's errors, as frameworks print them in place of their names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gpudoc.doctor.causes.sign import quote, text_finder, words
from gpudoc.doctor.model import Evidence, Finding, Skip
from gpudoc.facts.patterns import Pattern
from gpudoc.facts.readers.model import Text

# cuda.h's CUresult and driver_types.h's cudaError; the numbers below 100 that CUDA 10.1 gave to others are in _BEFORE
_CUDA: Mapping[int, tuple[str, float]] = {
    34: ("libcuda_stub_loaded", 0.8),
    35: ("driver_too_old", 0.88),
    36: ("driver_too_old", 0.8),
    46: ("compute_mode_exclusive", 0.76),
    100: ("no_gpu_on_machine", 0.5),
    101: ("invalid_device_ordinal", 0.8),
    214: ("gpu_ecc_error", 0.9),
    222: ("driver_too_old", 0.85),
    700: ("illegal_memory_access", 0.76),
    702: ("kernel_launch_timeout", 0.88),
    719: ("gpu_hardware_fault", 0.45),
    802: ("fabric_manager_not_running", 0.93),
    803: ("libcuda_mismatch_803", 0.93),
    804: ("forward_compat_on_consumer_gpu", 0.93),
    805: ("mps_daemon_unreachable", 0.93),
    806: ("mps_daemon_unreachable", 0.9),
    807: ("mps_daemon_unreachable", 0.9),
    999: ("uvm_broken_after_suspend", 0.6),
}
# the runtime's own numbers until CUDA 10.0: https://docs.nvidia.com/cuda/archive/10.0/cuda-runtime-api/
_BEFORE: Mapping[int, tuple[str, float]] = {
    6: ("kernel_launch_timeout", 0.85),
    30: ("uvm_broken_after_suspend", 0.5),
    38: ("no_gpu_on_machine", 0.5),
    39: ("gpu_ecc_error", 0.85),
    77: ("illegal_memory_access", 0.72),
}
# nvml.h, enum nvmlReturn_enum
_NVML: Mapping[int, tuple[str, float]] = {
    4: ("device_permission_denied", 0.8),
    8: ("gpu_power_missing", 0.85),
    9: ("driver_missing_or_not_loaded", 0.85),
    12: ("driver_missing_or_not_loaded", 0.6),
    15: ("gpu_fallen_off_bus", 0.9),
    18: ("driver_library_mismatch", 0.93),
}
_NUMBER = Pattern(
    r"(?i)\bcuda ?(?:runtime )?(?:error|failure|err) ?[(:=#]? ?(\d{1,3})\b(?![.\d%])"
    r"|\bcuda ?success\b[^\n]{0,24}\((?:0 vs\.? )?(\d{1,3})(?: vs\.? 0)?\)"
    r"|\bcu(?:da)?[a-z]\w{4,40}\b[^\n]{0,160}\berror code ?[:=] ?(\d{1,3})\b"
    r"|\bcuda initiali[sz]ation failure with error:? (\d{1,3})\b"
)
_NVML_NUMBER = Pattern(
    r"(?i)\bnvml\w*\b[^\n]{0,40}\b(?:error|return\w*|code|failed|status)\b(?: code)?\W{1,4}(\d{1,2})\b(?![.\d%])"
    r"|\bnvidia-smi\b[^\n]{0,30}\b(?:return|exit) (?:code|status)\W{1,3}(\d{1,2})\b"
)
_ABOUT_NVML = words(r"nvml", r"nvidia-smi")
_ABOUT_CUDA = words(r"\bcuda", r"\bcu[A-Z]\w+")


def _find_cuda(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    del evidence
    if text.find(_ABOUT_CUDA) is None:
        return
    for said in text.find_all(_NUMBER, most=20):
        number = int(next(group for group in said.match.groups() if group))
        row = _CUDA.get(number) or _BEFORE.get(number)
        if row is not None:
            yield Finding(id=row[0], confidence=row[1], evidence=(quote(said, f"CUDA error {number}"),))
            return


def _find_nvml(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    del evidence
    if text.find(_ABOUT_NVML) is None:
        return
    for said in text.find_all(_NVML_NUMBER, most=20):
        number = int(said[1] or said[2])
        row = _NVML.get(number)
        if row is not None:
            yield Finding(id=row[0], confidence=row[1], evidence=(quote(said, f"NVML error {number}"),))
            return


FINDERS = (
    text_finder("driver_too_old", _find_cuda),
    text_finder("driver_library_mismatch", _find_nvml),
)
