"""Every GPU as NVML describes it: the one funnel to NVML, which names each call before it makes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from ctypes import byref
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpudoc.facts.model import Absent, Fact, GpuProcess, Link
from gpudoc.facts.telling import Teller

# pynvml makes names for the error codes only when it is imported; these are the ones with a plain meaning for a fact
_REASONS = {
    3: "not supported by this GPU or driver",
    4: "no permission",
    10: "the driver did not answer in time",
    13: "this driver is too old for the question",
    15: "the GPU is lost",
    16: "the GPU needs a reset",
    999: "the driver answered: unknown error",
}
_LOST, _UNKNOWN, _FUNCTION_NOT_FOUND, _NOT_SUPPORTED = 15, 999, 13, 3
_BRANDS = {
    1: "quadro", 2: "tesla", 3: "nvs", 4: "grid", 5: "geforce", 6: "titan", 7: "nvidia-vapps", 8: "nvidia-vpc",
    9: "nvidia-vcs", 10: "nvidia-vws", 12: "quadro-rtx", 13: "nvidia-rtx", 14: "nvidia", 15: "geforce", 16: "titan",
}  # fmt: skip
_COMPUTE_MODES = {0: "default", 1: "exclusive_thread", 2: "prohibited", 3: "exclusive_process"}
_VIRTUALIZATION = {0: "none", 1: "passthrough", 2: "vgpu", 3: "host_vgpu", 4: "host_vsga"}
_FABRIC_STATES = {0: "not supported", 1: "not started", 2: "in progress", 3: "completed"}
_THROTTLE = {
    0x1: "gpu_idle", 0x2: "application_clocks", 0x4: "sw_power_cap", 0x8: "hw_slowdown", 0x10: "sync_boost",
    0x20: "sw_thermal", 0x40: "hw_thermal", 0x80: "hw_power_brake", 0x100: "display_clocks",
}  # fmt: skip
_COUNTERS = {
    "sw_power_cap": 74,
    "thermal_limit": 75,
    "sync_boost": 76,
    "sw_thermal": 269,
    "hw_thermal": 270,
    "hw_power_brake": 271,
}
_RECOVERY_ACTION_FIELD = 230
_MAX_NVLINKS = 18


class Nvml:
    """NVML with its errors turned into absent facts; each call is named to `teller` before it is made."""

    def __init__(self, teller: Teller) -> None:
        import pynvml

        self._library: Any = pynvml
        self._teller = teller

    @property
    def library(self) -> Any:
        """The pynvml module itself, for its structures."""
        return self._library

    def ask(self, name: str, *arguments: object) -> Any:
        """The answer of one NVML function, or Absent with the meaning of its error code."""
        answer, _ = self.ask_with_code(name, *arguments)
        return answer

    def ask_with_code(self, name: str, *arguments: object) -> tuple[Any, int]:
        """(answer or Absent, NVML's code, 0 when it answered)."""
        function = getattr(self._library, name, None)
        if function is None:
            return Absent("the installed nvidia-ml-py does not know the question"), _FUNCTION_NOT_FOUND
        self._teller.begin(name)
        try:
            return function(*arguments), 0
        except self._library.NVMLError as error:
            code = int(error.value)
            return Absent(_REASONS.get(code, f"NVML error {code}: {error}")), code
        except (UnicodeDecodeError, ValueError, TypeError) as error:
            return Absent(f"{name} answered nonsense: {error}"), _UNKNOWN

    def field(self, handle: object, field: int) -> Fact[int]:
        """The integer value of one NVML field."""
        values = self.ask("nvmlDeviceGetFieldValues", handle, [field])
        if isinstance(values, Absent):
            return values
        value = values[0]
        if value.nvmlReturn != 0:
            return Absent(_REASONS.get(value.nvmlReturn, f"NVML error {value.nvmlReturn}"))
        read = _FIELD_READERS.get(value.valueType)
        return Absent("the driver answered with an unknown type") if read is None else int(read(value.value))


_FIELD_READERS: Mapping[int, Callable[[Any], int]] = {
    0: lambda union: union.dVal,
    1: lambda union: union.uiVal,
    2: lambda union: union.ulVal,
    3: lambda union: union.ullVal,
    4: lambda union: union.sllVal,
    5: lambda union: union.siVal,
    6: lambda union: union.usVal,
}


def collect(teller: Teller, root: Path) -> None:
    """Tell what NVML answers on the driver and on every GPU (`nvidia-smi -q`)."""
    try:
        nvml = Nvml(teller)
    except ImportError as error:
        teller.fact("driver.nvml_code", Absent(f"nvidia-ml-py cannot be imported: {error}"))
        return
    _, code = nvml.ask_with_code("nvmlInit")
    teller.fact("driver.nvml_code", code)
    if code:
        teller.fact("driver.nvml_message", _message(nvml, code))
        teller.fact("gpus", Absent(f"NVML did not start: {_message(nvml, code)}"))
        return
    teller.fact("driver.nvml_message", "ok")
    teller.fact("driver.nvml_driver_version", nvml.ask("nvmlSystemGetDriverVersion"))
    cuda = nvml.ask("nvmlSystemGetCudaDriverVersion_v2")
    teller.fact("driver.cuda_version", cuda if isinstance(cuda, Absent) else (cuda // 1000, cuda % 1000 // 10))
    count = nvml.ask("nvmlDeviceGetCount")
    if isinstance(count, Absent):
        teller.fact("gpus", count)
        return
    teller.fact("gpus", [])
    links = [_tell_gpu(nvml, teller, index, root) for index in range(count)]
    for index, first in enumerate(links):
        _tell_replays(nvml, teller, index, first)


def _message(nvml: Nvml, code: int) -> str:
    return str(nvml.library.NVMLError(code))


def _tell_gpu(nvml: Nvml, teller: Teller, index: int, root: Path) -> Link:
    handle, code = nvml.ask_with_code("nvmlDeviceGetHandleByIndex", index)
    teller.fact(f"gpus.{index}", {"index": index, "nvml_code": code, "lost": code == _LOST})
    if code:
        return Link()
    for name, value in _identity(nvml, handle).items():
        teller.fact(f"gpus.{index}.{name}", value)
    for part in (_memory, _clocks, _power, _modes, _health, _fabric):
        for name, value in part(nvml, handle).items():
            teller.fact(f"gpus.{index}.{name}", value)
    teller.fact(f"gpus.{index}.processes", _processes(nvml, handle, root))
    link = _link(nvml, handle)
    teller.fact(f"gpus.{index}.link", link)
    return link


def _tell_replays(nvml: Nvml, teller: Teller, index: int, first: Link) -> None:
    """Transfers that the link repeated while the other questions were asked; what it repeated earlier is no fault."""
    if isinstance(first.replays, Absent):
        return
    handle, code = nvml.ask_with_code("nvmlDeviceGetHandleByIndex", index)
    again = Absent("the GPU did not answer twice") if code else nvml.ask("nvmlDeviceGetPcieReplayCounter", handle)
    added = again if isinstance(again, Absent) else again - first.replays
    teller.fact(f"gpus.{index}.link", replace(first, replays_added=added))


def _identity(nvml: Nvml, handle: object) -> dict[str, object]:
    pci = nvml.ask("nvmlDeviceGetPciInfo_v3", handle)
    brand = nvml.ask("nvmlDeviceGetBrand", handle)
    virtual = nvml.ask("nvmlDeviceGetVirtualizationMode", handle)
    return {
        "name": nvml.ask("nvmlDeviceGetName", handle),
        "brand": _named(brand, _BRANDS),
        "uuid": nvml.ask("nvmlDeviceGetUUID", handle),
        "pci_address": pci if isinstance(pci, Absent) else _address(pci.busId),
        "capability": _pair(nvml.ask("nvmlDeviceGetCudaComputeCapability", handle)),
        "num_cores": nvml.ask("nvmlDeviceGetNumGpuCores", handle),
        "memory_bus_bits": nvml.ask("nvmlDeviceGetMemoryBusWidth", handle),
        "gsp_firmware": _text(nvml.ask("nvmlDeviceGetGspFirmwareVersion", handle)),
        "vbios": nvml.ask("nvmlDeviceGetVbiosVersion", handle),
        "virtualization": _named(virtual, _VIRTUALIZATION),
        "licensed": _licence(nvml, handle) if virtual == 2 else Absent("not a virtual GPU"),
    }


def _memory(nvml: Nvml, handle: object) -> dict[str, object]:
    version = getattr(nvml.library, "nvmlMemory_v2", None)
    memory = nvml.ask("nvmlDeviceGetMemoryInfo", handle, version) if version else Absent("not known to nvidia-ml-py")
    if isinstance(memory, Absent):
        memory = nvml.ask("nvmlDeviceGetMemoryInfo", handle)
    bar1 = nvml.ask("nvmlDeviceGetBAR1MemoryInfo", handle)
    use = nvml.ask("nvmlDeviceGetUtilizationRates", handle)
    return {
        "memory_total_bytes": _member(memory, "total"),
        "memory_used_bytes": _member(memory, "used"),
        "memory_free_bytes": _member(memory, "free"),
        "bar1_total_bytes": _member(bar1, "bar1Total"),
        "utilization_percent": _member(use, "gpu"),
    }


def _clocks(nvml: Nvml, handle: object) -> dict[str, object]:
    mask, code = nvml.ask_with_code("nvmlDeviceGetCurrentClocksEventReasons", handle)
    if code == _FUNCTION_NOT_FOUND:
        mask = nvml.ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
    counters = {name: nvml.field(handle, field) for name, field in _COUNTERS.items()}
    known = {name: value for name, value in counters.items() if not isinstance(value, Absent)}
    state = nvml.ask("nvmlDeviceGetPerformanceState", handle)
    return {
        "sm_clock_mhz": nvml.ask("nvmlDeviceGetClockInfo", handle, 1),
        "sm_clock_max_mhz": nvml.ask("nvmlDeviceGetMaxClockInfo", handle, 1),
        "memory_clock_mhz": nvml.ask("nvmlDeviceGetClockInfo", handle, 2),
        "memory_clock_max_mhz": nvml.ask("nvmlDeviceGetMaxClockInfo", handle, 2),
        "throttle_reasons": mask if isinstance(mask, Absent) else throttle_names(mask),
        "throttle_counters_ns": known or next(iter(counters.values())),
        "performance_state": Absent("not known to the driver") if state == 32 else state,
    }


def throttle_names(mask: int) -> tuple[str, ...]:
    """The names of the reasons in NVML's mask (`nvidia-smi -q -d PERFORMANCE`)."""
    return tuple(name for bit, name in _THROTTLE.items() if mask & bit)


def _power(nvml: Nvml, handle: object) -> dict[str, object]:
    slowdown = nvml.ask("nvmlDeviceGetTemperatureThreshold", handle, 1)
    return {
        "power_w": _watts(nvml.ask("nvmlDeviceGetPowerUsage", handle)),
        "power_limit_w": _watts(nvml.ask("nvmlDeviceGetEnforcedPowerLimit", handle)),
        "power_limit_default_w": _watts(nvml.ask("nvmlDeviceGetPowerManagementDefaultLimit", handle)),
        "temperature_c": nvml.ask("nvmlDeviceGetTemperature", handle, 0),
        "temperature_slowdown_c": slowdown,
        "temperature_margin_c": nvml.ask("nvmlDeviceGetMarginTemperature", handle),
    }


def _modes(nvml: Nvml, handle: object) -> dict[str, object]:
    mig = nvml.ask("nvmlDeviceGetMigMode", handle)
    ecc = nvml.ask("nvmlDeviceGetEccMode", handle)
    return {
        "persistence": _flag(nvml.ask("nvmlDeviceGetPersistenceMode", handle)),
        "compute_mode": _named(nvml.ask("nvmlDeviceGetComputeMode", handle), _COMPUTE_MODES),
        "mig_enabled": mig if isinstance(mig, Absent) else bool(mig[0]),
        "mig_pending": mig if isinstance(mig, Absent) else bool(mig[1]),
        "mig_instances": _mig_instances(nvml, handle, mig),
        "ecc_enabled": ecc if isinstance(ecc, Absent) else bool(ecc[0]),
        "ecc_pending": ecc if isinstance(ecc, Absent) else bool(ecc[1]),
        "display_attached": _flag(nvml.ask("nvmlDeviceGetDisplayActive", handle)),
        "numa_node": nvml.ask("nvmlDeviceGetNumaNodeId", handle),
    }


def _health(nvml: Nvml, handle: object) -> dict[str, object]:
    rows = nvml.ask("nvmlDeviceGetRemappedRows", handle)
    sram = _sram(nvml, handle)
    repair = nvml.ask("nvmlDeviceGetRepairStatus", handle)
    return {
        "ecc_uncorrected_volatile": nvml.ask("nvmlDeviceGetTotalEccErrors", handle, 1, 0),
        "ecc_uncorrected_aggregate": nvml.ask("nvmlDeviceGetTotalEccErrors", handle, 1, 1),
        "ecc_corrected_aggregate": nvml.ask("nvmlDeviceGetTotalEccErrors", handle, 0, 1),
        "sram_threshold_exceeded": sram,
        "retired_pages_pending": _flag(nvml.ask("nvmlDeviceGetRetiredPagesPendingStatus", handle)),
        "rows_remapped_uncorrectable": rows if isinstance(rows, Absent) else int(rows[1]),
        "rows_remap_pending": rows if isinstance(rows, Absent) else bool(rows[2]),
        "rows_remap_failed": rows if isinstance(rows, Absent) else bool(rows[3]),
        "repair_pending": repair if isinstance(repair, Absent) else any(repair),
        "recovery_action": nvml.field(handle, _RECOVERY_ACTION_FIELD),
    }


def _sram(nvml: Nvml, handle: object) -> Fact[bool]:
    make = getattr(nvml.library, "c_nvmlEccSramErrorStatus_v1_t", None)
    if make is None:
        return Absent("not known to nvidia-ml-py")
    status = make()
    answer = nvml.ask("nvmlDeviceGetSramEccErrorStatus", handle, byref(status))
    return answer if isinstance(answer, Absent) else bool(status.bThresholdExceeded)


def _fabric(nvml: Nvml, handle: object) -> dict[str, object]:
    links = [nvml.ask_with_code("nvmlDeviceGetNvLinkState", handle, 0)]
    if links[0][1] == 0:
        links += [nvml.ask_with_code("nvmlDeviceGetNvLinkState", handle, link) for link in range(1, _MAX_NVLINKS)]
    states = [state for state, code in links if code == 0]
    info = nvml.library.c_nvmlGpuFabricInfo_t()
    answer = nvml.ask("nvmlDeviceGetGpuFabricInfo", handle, byref(info))
    return {
        "nvlink_total": len(states) if states else links[0][0],
        "nvlink_active": sum(map(bool, states)) if states else links[0][0],
        "fabric_state": answer if isinstance(answer, Absent) else _named(info.state, _FABRIC_STATES),
        "fabric_status": answer if isinstance(answer, Absent) else int(info.status),
    }


def _link(nvml: Nvml, handle: object) -> Link:
    return Link(
        generation=nvml.ask("nvmlDeviceGetCurrPcieLinkGeneration", handle),
        generation_max=nvml.ask("nvmlDeviceGetMaxPcieLinkGeneration", handle),
        generation_gpu_max=nvml.ask("nvmlDeviceGetGpuMaxPcieLinkGeneration", handle),
        width=nvml.ask("nvmlDeviceGetCurrPcieLinkWidth", handle),
        width_max=nvml.ask("nvmlDeviceGetMaxPcieLinkWidth", handle),
        replays=nvml.ask("nvmlDeviceGetPcieReplayCounter", handle),
    )


def _processes(nvml: Nvml, handle: object, root: Path) -> Fact[tuple[GpuProcess, ...]]:
    found, code = nvml.ask_with_code("nvmlDeviceGetComputeRunningProcesses_v3", handle)
    if code == _FUNCTION_NOT_FOUND:
        found = nvml.ask("nvmlDeviceGetComputeRunningProcesses_v2", handle)
    if isinstance(found, Absent):
        return found
    return tuple(_process(entry, root) for entry in found)


def _process(entry: Any, root: Path) -> GpuProcess:
    alive = (root / "proc" / str(entry.pid)).exists()
    try:
        name: Fact[str] = (root / "proc" / str(entry.pid) / "comm").read_text("utf-8", "replace").strip()
    except OSError:
        name = Absent("the process is not visible here")
    used = entry.usedGpuMemory
    return GpuProcess(
        pid=int(entry.pid),
        memory_bytes=Absent("the driver does not say") if used is None else int(used),
        name=name,
        alive=alive,
    )


def _mig_instances(nvml: Nvml, handle: object, mode: Any) -> Fact[int]:
    if isinstance(mode, Absent) or not mode[0]:
        return Absent("MIG is off")
    most = nvml.ask("nvmlDeviceGetMaxMigDeviceCount", handle)
    if isinstance(most, Absent):
        return most
    codes = [nvml.ask_with_code("nvmlDeviceGetMigDeviceHandleByIndex", handle, index)[1] for index in range(most)]
    return codes.count(0)


def _licence(nvml: Nvml, handle: object) -> Fact[bool]:
    features = nvml.ask("nvmlDeviceGetGridLicensableFeatures", handle)
    if isinstance(features, Absent):
        return features
    if not features.isGridLicenseSupported:
        return Absent("the driver needs no licence")
    entries = list(features.gridLicensableFeatures)[: features.licensableFeaturesCount]
    return any(entry.featureState for entry in entries)


def _address(bus_id: Any) -> str:
    """NVML writes an eight-digit domain, the kernel four: 00000000:3B:00.0 is 0000:3b:00.0."""
    text = bus_id.decode() if isinstance(bus_id, bytes) else str(bus_id)
    domain, _, rest = text.lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def _member(value: Any, name: str) -> Any:
    return value if isinstance(value, Absent) else int(getattr(value, name))


def _named(value: Any, names: Mapping[int, str]) -> Fact[str]:
    return value if isinstance(value, Absent) else names.get(int(value), f"unknown ({int(value)})")


def _flag(value: Any) -> Fact[bool]:
    return value if isinstance(value, Absent) else bool(value)


def _pair(value: Any) -> Any:
    return value if isinstance(value, Absent) else (int(value[0]), int(value[1]))


def _text(value: Any) -> Fact[str]:
    return (
        value
        if isinstance(value, Absent)
        else value.decode("utf-8", "replace")
        if isinstance(value, bytes)
        else str(value)
    )


def _watts(value: Any) -> Fact[float]:
    return value if isinstance(value, Absent) else int(value) / 1000
