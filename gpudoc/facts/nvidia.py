"""Every GPU as NVML describes it; `Device` records when an answer says that the whole GPU failed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Set
from ctypes import byref
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from gpudoc.facts.files import read_int
from gpudoc.facts.holders import describe
from gpudoc.facts.model import Absent, Fact, GpuProcess, Link
from gpudoc.facts.nvlink import read_fabric, read_nvlink_ends, read_nvlink_errors, read_nvlink_states
from gpudoc.facts.nvml import FUNCTION_NOT_FOUND, NOT_FOUND_CODE, NOT_SUPPORTED_CODE, Device, Nvml, plain_bus_id
from gpudoc.facts.telling import Teller

_BRANDS = {
    1: "quadro", 2: "tesla", 3: "nvs", 4: "grid", 5: "geforce", 6: "titan", 7: "nvidia-vapps", 8: "nvidia-vpc",
    9: "nvidia-vcs", 10: "nvidia-vws", 12: "quadro-rtx", 13: "nvidia-rtx", 14: "nvidia", 15: "geforce", 16: "titan",
}  # fmt: skip
_COMPUTE_MODES = {0: "default", 1: "exclusive_thread", 2: "prohibited", 3: "exclusive_process"}
_VIRTUALIZATION = {0: "none", 1: "passthrough", 2: "vgpu", 3: "host_vgpu", 4: "host_vsga"}
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
_SECOND_LOOK_S = 0.05
# lists of programs that draw and of MPS clients; programs that compute are on a separate list
_OTHER_LISTS = ("nvmlDeviceGetGraphicsRunningProcesses_v3", "nvmlDeviceGetMPSComputeRunningProcesses_v3")


def collect(teller: Teller, root: Path) -> None:
    """Report NVML's answers about the driver and every GPU (`nvidia-smi -q`)."""
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
    for index in range(count):
        # list all GPUs before asking the first one: a GPU that a hang leaves unasked must not count as healthy
        teller.fact(f"gpus.{index}", {"index": index})
    devices = [Device(nvml, teller, index) for index in range(count)]
    began = time.monotonic()
    growing = [_tell_gpu(gpu, teller, root) for gpu in devices]
    if not all(isinstance(counter, Absent) for first in growing for counter in (first.link.replays, first.errors)):
        time.sleep(max(0.0, _SECOND_LOOK_S - (time.monotonic() - began)))
    for gpu, first in zip(devices, growing, strict=True):
        _tell_growth(gpu, teller, first)


def _message(nvml: Nvml, code: int) -> str:
    return str(nvml.library.NVMLError(code))


class _Growing(NamedTuple):
    """Counters at the first reading."""

    link: Link
    nvlinks: tuple[bool, ...]
    errors: Fact[int]


def _tell_gpu(gpu: Device, teller: Teller, root: Path) -> _Growing:
    place = f"gpus.{gpu.index}"
    identity = _identity(gpu)
    address = identity["pci_address"]
    # NVML's nvmlDeviceGetNumaNodeId is about the GPU's memory, if that memory is a NUMA node (GH200)
    near = address if isinstance(address, Absent) else read_int(root, f"sys/bus/pci/devices/{address}/numa_node")
    teller.fact(f"{place}.numa_node", near)
    for name, value in identity.items():
        teller.fact(f"{place}.{name}", value)
    for part in (_memory, _clocks, _power, _modes, _health, read_fabric):
        for name, value in part(gpu).items():
            teller.fact(f"{place}.{name}", value)
    processes = _processes(gpu, root)
    teller.fact(f"{place}.processes", processes)
    teller.fact(f"{place}.memory_accounted_bytes", _accounted(gpu, root, processes))
    states = read_nvlink_states(gpu)
    teller.fact(f"{place}.nvlink_total", states if isinstance(states, Absent) else len(states))
    teller.fact(f"{place}.nvlink_active", states if isinstance(states, Absent) else sum(states))
    teller.fact(f"{place}.nvlink_ends", states if isinstance(states, Absent) else read_nvlink_ends(gpu, states))
    errors = states if isinstance(states, Absent) else read_nvlink_errors(gpu, states)
    teller.fact(f"{place}.nvlink_errors", errors)
    link = _link(gpu)
    teller.fact(f"{place}.link", link)
    if gpu.code == 0:
        teller.fact(f"{place}.nvml_code", 0)
        teller.fact(f"{place}.lost", False)
    return _Growing(link, () if isinstance(states, Absent) else states, errors)


def _tell_growth(gpu: Device, teller: Teller, first: _Growing) -> None:
    """Report the replays and errors of the links since the first reading; earlier ones are not a fault."""
    place, replays = f"gpus.{gpu.index}", first.link.replays
    if not isinstance(replays, Absent):
        again = gpu.ask("nvmlDeviceGetPcieReplayCounter")
        added = again if isinstance(again, Absent) else again - replays
        teller.fact(f"{place}.link", replace(first.link, replays_added=added))
    errors = first.errors
    if not isinstance(errors, Absent):
        later = read_nvlink_errors(gpu, first.nvlinks)
        errors = later if isinstance(later, Absent) else later - errors
    teller.fact(f"{place}.nvlink_errors_added", errors)


def _identity(gpu: Device) -> dict[str, object]:
    pci = gpu.ask("nvmlDeviceGetPciInfo_v3")
    brand = gpu.ask("nvmlDeviceGetBrand")
    virtual = gpu.ask("nvmlDeviceGetVirtualizationMode")
    name, code = gpu.ask_with_code("nvmlDeviceGetName")
    gpu.must_answer("nvmlDeviceGetName", code)
    return {
        "name": name,
        "brand": _named(brand, _BRANDS),
        "uuid": gpu.ask("nvmlDeviceGetUUID"),
        "pci_address": pci if isinstance(pci, Absent) else plain_bus_id(pci.busId),
        "capability": _pair(gpu.ask("nvmlDeviceGetCudaComputeCapability")),
        "num_cores": gpu.ask("nvmlDeviceGetNumGpuCores"),
        "memory_bus_bits": gpu.ask("nvmlDeviceGetMemoryBusWidth"),
        "gsp_firmware": _text(gpu.ask("nvmlDeviceGetGspFirmwareVersion")),
        "vbios": gpu.ask("nvmlDeviceGetVbiosVersion"),
        "virtualization": _named(virtual, _VIRTUALIZATION),
        "licensed": _licence(gpu) if virtual == 2 else Absent("not a virtual GPU"),
    }


def _memory(gpu: Device) -> dict[str, object]:
    version = getattr(gpu.nvml.library, "nvmlMemory_v2", None)
    question = "nvmlDeviceGetMemoryInfo"
    memory, code = gpu.ask_with_code(question, version) if version else (None, FUNCTION_NOT_FOUND)
    if code:
        memory, code = gpu.ask_with_code(question)
    gpu.must_answer(question, code)
    bar1 = gpu.ask("nvmlDeviceGetBAR1MemoryInfo")
    use = gpu.ask("nvmlDeviceGetUtilizationRates")
    return {
        "memory_total_bytes": _member(memory, "total"),
        "memory_used_bytes": _member(memory, "used"),
        "memory_free_bytes": _member(memory, "free"),
        "bar1_total_bytes": _member(bar1, "bar1Total"),
        "utilization_percent": _member(use, "gpu"),
    }


def _clocks(gpu: Device) -> dict[str, object]:
    mask, code = gpu.ask_with_code("nvmlDeviceGetCurrentClocksEventReasons")
    if code == FUNCTION_NOT_FOUND:
        mask = gpu.ask("nvmlDeviceGetCurrentClocksThrottleReasons")
    counters = {name: gpu.field(field) for name, field in _COUNTERS.items()}
    known = {name: value for name, value in counters.items() if not isinstance(value, Absent)}
    state = gpu.ask("nvmlDeviceGetPerformanceState")
    return {
        "sm_clock_mhz": gpu.ask("nvmlDeviceGetClockInfo", 1),
        "sm_clock_max_mhz": gpu.ask("nvmlDeviceGetMaxClockInfo", 1),
        "memory_clock_mhz": gpu.ask("nvmlDeviceGetClockInfo", 2),
        "memory_clock_max_mhz": gpu.ask("nvmlDeviceGetMaxClockInfo", 2),
        "throttle_reasons": mask if isinstance(mask, Absent) else throttle_names(mask),
        "throttle_counters_ns": known or next(iter(counters.values())),
        "thermal_slowdown_ns": _hot_time(counters),
        "performance_state": Absent("not known to the driver") if state == 32 else state,
    }


def _hot_time(counters: Mapping[str, Fact[int]]) -> Fact[int]:
    """How long heat reduced the clocks, in software or hardware; older drivers have one counter for both."""
    software, hardware = counters["sw_thermal"], counters["hw_thermal"]
    if isinstance(software, Absent) or isinstance(hardware, Absent):
        return counters["thermal_limit"]
    return max(software, hardware)


def throttle_names(mask: int) -> tuple[str, ...]:
    """The names of the reasons in NVML's mask (`nvidia-smi -q -d PERFORMANCE`)."""
    return tuple(name for bit, name in _THROTTLE.items() if mask & bit)


def _power(gpu: Device) -> dict[str, object]:
    slowdown = gpu.ask("nvmlDeviceGetTemperatureThreshold", 1)
    limits = gpu.ask("nvmlDeviceGetPowerManagementLimitConstraints")
    return {
        "power_w": _watts(gpu.ask("nvmlDeviceGetPowerUsage")),
        "power_limit_w": _watts(gpu.ask("nvmlDeviceGetEnforcedPowerLimit")),
        "power_limit_default_w": _watts(gpu.ask("nvmlDeviceGetPowerManagementDefaultLimit")),
        "power_limit_min_w": limits if isinstance(limits, Absent) else _watts(limits[0]),
        "power_limit_max_w": limits if isinstance(limits, Absent) else _watts(limits[1]),
        "temperature_c": gpu.ask("nvmlDeviceGetTemperature", 0),
        "temperature_slowdown_c": slowdown,
        "temperature_margin_c": gpu.ask("nvmlDeviceGetMarginTemperature"),
    }


def _modes(gpu: Device) -> dict[str, object]:
    mig = gpu.ask("nvmlDeviceGetMigMode")
    ecc = gpu.ask("nvmlDeviceGetEccMode")
    return {
        "persistence": _flag(gpu.ask("nvmlDeviceGetPersistenceMode")),
        "compute_mode": _named(gpu.ask("nvmlDeviceGetComputeMode"), _COMPUTE_MODES),
        "mig_enabled": mig if isinstance(mig, Absent) else bool(mig[0]),
        "mig_pending": mig if isinstance(mig, Absent) else bool(mig[1]),
        "mig_instances": _mig_instances(gpu, mig),
        "ecc_enabled": ecc if isinstance(ecc, Absent) else bool(ecc[0]),
        "ecc_pending": ecc if isinstance(ecc, Absent) else bool(ecc[1]),
        "display_attached": _flag(gpu.ask("nvmlDeviceGetDisplayActive")),
    }


def _health(gpu: Device) -> dict[str, object]:
    rows = gpu.ask("nvmlDeviceGetRemappedRows")
    sram = _sram(gpu)
    repair = gpu.ask("nvmlDeviceGetRepairStatus")
    return {
        "ecc_uncorrected_volatile": gpu.ask("nvmlDeviceGetTotalEccErrors", 1, 0),
        "ecc_uncorrected_aggregate": gpu.ask("nvmlDeviceGetTotalEccErrors", 1, 1),
        "ecc_corrected_aggregate": gpu.ask("nvmlDeviceGetTotalEccErrors", 0, 1),
        "sram_threshold_exceeded": sram,
        "retired_pages_pending": _flag(gpu.ask("nvmlDeviceGetRetiredPagesPendingStatus")),
        "rows_remapped_uncorrectable": rows if isinstance(rows, Absent) else int(rows[1]),
        "rows_remap_pending": rows if isinstance(rows, Absent) else bool(rows[2]),
        "rows_remap_failed": rows if isinstance(rows, Absent) else bool(rows[3]),
        "repair_pending": repair if isinstance(repair, Absent) else any(repair),
        "recovery_action": gpu.field(_RECOVERY_ACTION_FIELD),
    }


def _sram(gpu: Device) -> Fact[bool]:
    make = getattr(gpu.nvml.library, "c_nvmlEccSramErrorStatus_v1_t", None)
    if make is None:
        return Absent("not known to nvidia-ml-py")
    status = make()
    answer = gpu.ask("nvmlDeviceGetSramEccErrorStatus", byref(status))
    return answer if isinstance(answer, Absent) else bool(status.bThresholdExceeded)


def _link(gpu: Device) -> Link:
    return Link(
        generation=gpu.ask("nvmlDeviceGetCurrPcieLinkGeneration"),
        generation_max=gpu.ask("nvmlDeviceGetMaxPcieLinkGeneration"),
        generation_gpu_max=gpu.ask("nvmlDeviceGetGpuMaxPcieLinkGeneration"),
        width=gpu.ask("nvmlDeviceGetCurrPcieLinkWidth"),
        width_max=gpu.ask("nvmlDeviceGetMaxPcieLinkWidth"),
        replays=gpu.ask("nvmlDeviceGetPcieReplayCounter"),
    )


def _processes(gpu: Device, root: Path) -> Fact[tuple[GpuProcess, ...]]:
    found, code = gpu.ask_with_code("nvmlDeviceGetComputeRunningProcesses_v3")
    if code == FUNCTION_NOT_FOUND:
        found = gpu.ask("nvmlDeviceGetComputeRunningProcesses_v2")
    if isinstance(found, Absent):
        return found
    processes = tuple(_process(entry, root) for entry in found)
    used = read_work(gpu.ask_with_code, {process.pid for process in processes}) if processes else {}
    return tuple(
        replace(process, sm_percent=used if isinstance(used, Absent) else used.get(process.pid, 0))
        for process in processes
    )


def read_work(ask: Callable[..., tuple[Any, int]], computing: Set[int]) -> Fact[Mapping[int, int]]:
    """The highest use of the SMs by each process, in percent, over the seconds for which the driver keeps samples.

    `ask` asks NVML one question about the GPU. `computing` are the process ids on NVML's list of compute processes. The
    result is Absent if the driver may number processes differently on its lists and in its samples.
    """
    samples, code = ask("nvmlDeviceGetProcessUtilization", 0)
    if code == NOT_FOUND_CODE:
        # no process did anything
        return {}
    if isinstance(samples, Absent):
        return samples
    most: dict[int, int] = {}
    for sample in samples:
        most[int(sample.pid)] = max(most.get(int(sample.pid), 0), int(sample.smUtil))
    unlisted = {pid for pid, used in most.items() if used} - computing
    for question in _OTHER_LISTS if unlisted else ():
        listed, code = ask(question)
        unlisted -= set() if code else {int(entry.pid) for entry in listed}
    if unlisted:
        # in a container the two answers may number the same process differently
        return Absent("the driver reports work for process ids that it does not list")
    return most


def _accounted(gpu: Device, root: Path, computing: Fact[tuple[GpuProcess, ...]]) -> Fact[int]:
    """Memory that programs hold, whatever they use the GPU for; each program counts once."""
    if isinstance(computing, Absent):
        return computing
    mig = gpu.ask("nvmlDeviceGetMigMode")
    if not isinstance(mig, Absent) and mig[0]:
        return Absent("with MIG on, each instance has its own processes")
    if not isinstance(gpu.ask("nvmlDeviceGetNumaNodeId"), Absent):
        return Absent("this GPU shares its memory with the system")
    held = {process.pid: process.memory_bytes for process in computing}
    for question in _OTHER_LISTS:
        found, code = gpu.ask_with_code(question)
        if code not in (0, NOT_SUPPORTED_CODE):
            return Absent(found.reason)
        for process in () if code else (_process(entry, root) for entry in found):
            held.setdefault(process.pid, process.memory_bytes)
    unknown = next((size for size in held.values() if isinstance(size, Absent)), None)
    return unknown or sum(size for size in held.values() if not isinstance(size, Absent))


def _process(entry: Any, root: Path) -> GpuProcess:
    used = entry.usedGpuMemory
    memory = Absent("the driver does not say") if used is None else int(used)
    return replace(describe(int(entry.pid), root), memory_bytes=memory)


def _mig_instances(gpu: Device, mode: Any) -> Fact[int]:
    if isinstance(mode, Absent) or not mode[0]:
        return Absent("MIG is off")
    most = gpu.ask("nvmlDeviceGetMaxMigDeviceCount")
    if isinstance(most, Absent):
        return most
    codes = [gpu.ask_with_code("nvmlDeviceGetMigDeviceHandleByIndex", index)[1] for index in range(most)]
    return codes.count(0)


def _licence(gpu: Device) -> Fact[bool]:
    features = gpu.ask("nvmlDeviceGetGridLicensableFeatures")
    if isinstance(features, Absent):
        return features
    if not features.isGridLicenseSupported:
        return Absent("the driver needs no licence")
    entries = list(features.gridLicensableFeatures)[: features.licensableFeaturesCount]
    return any(entry.featureState for entry in entries)


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
