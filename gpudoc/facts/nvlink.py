"""The NVLinks of one GPU: which are up, the errors that they count, and the GPU's place in the NVSwitch fabric."""

from __future__ import annotations

from ctypes import byref

from gpudoc.facts.model import NOT_SUPPORTED, Absent, Fact
from gpudoc.facts.nvml import INVALID_ARGUMENT, NOT_SUPPORTED_CODE, Device, plain_bus_id

_MAX_NVLINKS = 18
# NVML_NVLINK_DEVICE_TYPE_SWITCH
_SWITCH = 2
_STATES = {0: "not supported", 1: "not started", 2: "in progress", 3: "completed"}
# replays, recoveries and CRC errors of each link; since Blackwell, received errors and recoveries
_NVLINK_ERRORS = ((161, 162, 163), (208, 215))
# totals from drivers that do not count each link separately
_NVLINK_ERROR_TOTALS = (38, 45, 52, 59)
# NVML_GPU_FABRIC_HEALTH_MASK_*: position of two bits -> (the value that is a fault, its meaning)
_FABRIC_HEALTH = {
    0: (1, "degraded bandwidth"), 2: (1, "route recovery in progress"), 4: (1, "route unhealthy"),
    6: (1, "recovery from an access timeout"), 12: (2, "no partition assigned"), 14: (2, "fabric manager disconnected"),
}  # fmt: skip
# 0 is "not supported", 1 "no fault"; any newer number means a fault
_CONFIGURED = (0, 1)
_FABRIC_CONFIGURATION = {
    2: "wrong system identifier", 3: "wrong chassis serial number", 4: "no partition", 5: "too few NVLinks",
    6: "incompatible GPU firmware", 7: "invalid location", 8: "invalid GPU state",
}  # fmt: skip


def read_nvlink_states(gpu: Device) -> Fact[tuple[bool, ...]]:
    """Whether each NVLink is up, one by one; absent if the GPU has none."""
    first, code = gpu.ask_with_code("nvmlDeviceGetNvLinkState", 0)
    if code:
        return Absent(first.reason)
    states = [bool(first)]
    for link in range(1, _MAX_NVLINKS):
        state, code = gpu.ask_with_code("nvmlDeviceGetNvLinkState", link)
        if code in (INVALID_ARGUMENT, NOT_SUPPORTED_CODE):
            break
        if code:
            return Absent(state.reason)
        states.append(bool(state))
    return tuple(states)


def read_nvlink_errors(gpu: Device, states: tuple[bool, ...]) -> Fact[int]:
    """The sum of errors of all links that are up, by the counters that this generation and driver have."""
    links = [link for link, up in enumerate(states) if up] or range(len(states))
    for fields in _NVLINK_ERRORS:
        answers = gpu.fields([(field, link) for link in links for field in fields])
        known = [answer for answer in answers if not isinstance(answer, Absent)]
        if len(known) == len(answers):
            return sum(known)
    totals = gpu.fields(_NVLINK_ERROR_TOTALS)
    known = [total for total in totals if not isinstance(total, Absent)]
    return sum(known) if len(known) == len(totals) else next(a for a in totals if isinstance(a, Absent))


def read_nvlink_ends(gpu: Device, states: tuple[bool, ...]) -> Fact[tuple[str, ...]]:
    """Where each link that is up leads: 'switch', or the PCI address of another device (`nvidia-smi nvlink -R`)."""
    ends = []
    for link in (link for link, up in enumerate(states) if up):
        kind = gpu.ask("nvmlDeviceGetNvLinkRemoteDeviceType", link)
        end = kind if isinstance(kind, Absent) or kind == _SWITCH else gpu.ask("nvmlDeviceGetNvLinkRemotePciInfo", link)
        if isinstance(end, Absent):
            return end
        ends.append("switch" if kind == _SWITCH else plain_bus_id(end.busId))
    return tuple(ends)


def read_fabric(gpu: Device) -> dict[str, object]:
    """The GPU's state in the NVSwitch fabric, with its health since driver 550."""
    library = gpu.nvml.library
    make = getattr(library, "c_nvmlGpuFabricInfo_v2_t", None)
    info = make() if make else library.c_nvmlGpuFabricInfo_t()
    unknown = Absent("the installed nvidia-ml-py does not support this query")
    answer = gpu.ask("nvmlDeviceGetGpuFabricInfoV", byref(info)) if make else unknown
    old = answer if isinstance(answer, Absent) else None
    if old:
        info = library.c_nvmlGpuFabricInfo_t()
        answer = gpu.ask("nvmlDeviceGetGpuFabricInfo", byref(info))
    if not isinstance(answer, Absent) and info.state == 0:
        answer = Absent(NOT_SUPPORTED)
    if isinstance(answer, Absent):
        return {"fabric_state": answer, "fabric_status": answer, "fabric_health": answer}
    return {
        "fabric_state": _STATES.get(int(info.state), f"unknown ({int(info.state)})"),
        "fabric_status": int(info.status),
        "fabric_health": old or fabric_faults(info.healthMask),
    }


def fabric_faults(mask: int) -> tuple[str, ...]:
    """The faults in NVML's mask of the fabric's health (`nvidia-smi -q`, Fabric, Health), without healthy parts."""
    bits = [text for place, (bad, text) in _FABRIC_HEALTH.items() if mask >> place & 0x3 == bad]
    code = mask >> 8 & 0xF
    wrong = [] if code in _CONFIGURED else [f"incorrect configuration: {_FABRIC_CONFIGURATION.get(code, code)}"]
    return (*bits, *wrong)
