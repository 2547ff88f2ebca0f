"""Reads `nvidia-smi -q`, any of its sections (`-d`), and `-x`, which has the same keys as XML elements."""

from __future__ import annotations

from collections.abc import Sequence

from gpudoc.facts.model import Absent, DeviceTest, GpuProcess
from gpudoc.facts.readers.gather import Gather, stated, version_pair
from gpudoc.facts.readers.model import Line
from gpudoc.patterns import Pattern

FABRIC = "nvidia-smi fabric health"
_SECTION = Pattern(r"^\W{0,3}GPU ([0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\s*$")
# lines that only -q has, for a paste that lacks the line which names the GPU
_ONLY_QUERY = Pattern(
    r"^\s*(?:(?:Ecc Mode|ECC Errors|Remapped Rows|Retired Pages|FB Memory Usage|BAR1 Memory Usage|GPU Link Info|"
    r"Clocks (?:Throttle|Event) Reasons|MIG Mode|vGPU Software Licensed Product|GPU Reset Status|GPU Power Readings|"
    r"Max Clocks)\s*$|GPU (?:Current|Slowdown|Shutdown) Temp\s{2,}:)"
)
_GPU_ID = Pattern(r'<gpu id="([0-9A-Fa-f:.]+)"')
_PAIR = Pattern(r"^\s*([A-Za-z](?:[\w .()/-]*?[\w.()/-])?)\s*:\s+(.*)$")
_ELEMENT = Pattern(r"^\s*<(\w+)>([^<]*)</\w+>\s*$")
_OPENED = Pattern(r"^\s*<(\w+)>\s*$")
_REASON = Pattern(r"^clocks (?:event|throttle) reason ")
# NVML_GPU_RECOVERY_ACTION_*, as nvidia-smi words them
ACTIONS = {"reset": 1, "reboot": 2, "drain p2p": 3, "drain and reset": 4}
_UNWELL = ("true", "unhealthy", "degraded", "limited capacity")
# if two lines are farther apart than this, without blank ones, a piece of the text between them was left out
_NEAR = 12


class _State:
    """The reader's position: the GPU, the headings above the line, the process that is being described."""

    def __init__(self) -> None:
        self.gpu = -1
        self.last: Line | None = None
        self.known: dict[str, int] = {}
        self.section: list[tuple[int, str]] = []
        self.reasons: dict[int, tuple[dict[str, None], Line]] = {}
        self.process: dict[str, str] = {}


def read(lines: Sequence[Line], gather: Gather) -> None:
    """Put what the query says into `gather`."""
    state = _State()
    for line in lines:
        if not line.follows(state.last, within=_NEAR):
            # the lines in between were left out and may include another GPU's heading
            state.gpu, state.section = -1, []
        state.last = line
        _read_line(line, gather, state)
    for gpu, (reasons, line) in state.reasons.items():
        gather.put_gpu(gpu, line, throttle_reasons=tuple(reasons))


def _read_line(line: Line, gather: Gather, state: _State) -> None:
    section = _SECTION.match(line.text) or ('<gpu id="' in line.text and _GPU_ID.search(line.text))
    if section:
        address = section[1].lower()
        # if the text also contains the nvidia-smi table, it gives the number of this address
        listed = next(
            (i for i in gather.gpu_indices() if str(gather.gpu_fact(i, "pci_address")).lower() == address), None
        )
        state.gpu = state.known.setdefault(address, len(state.known) if listed is None else listed)
        state.section = []
        gather.recognise("nvidia_smi_x" if "<" in line.text else "nvidia_smi_q")
        gather.put_gpu(state.gpu, line, pci_address=section[1])
    elif "<" in line.text and (element := _ELEMENT.match(line.text)):
        within = " / ".join(s[1] for s in state.section)
        _put(_plain(element[1]), within, stated(element[2]), line, gather, state)
    elif "<" in line.text and (opened := _OPENED.match(line.text)):
        state.section = [(0, _plain(opened[1]))]
    else:
        _read_pair(line, gather, state)


def _plain(tag: str) -> str:
    return _REASON.sub("", tag.replace("_", " ").lower())


def _read_pair(line: Line, gather: Gather, state: _State) -> None:
    if state.gpu < 0 and not state.known and _ONLY_QUERY.match(line.text):
        state.gpu = 0
        gather.recognise("nvidia_smi_q")
    if state.gpu < 0:
        return
    indent = len(line.text) - len(line.text.lstrip())
    state.section = [s for s in state.section if s[0] < indent]
    pair = _PAIR.match(line.text)
    if pair is None:
        state.section.append((indent, line.text.strip().lower()))
        return
    _put(pair[1].lower(), " / ".join(s[1] for s in state.section), stated(pair[2]), line, gather, state)


def _put(key: str, within: str, value: str | None, line: Line, gather: Gather, state: _State) -> None:
    if value is None:
        return
    if key == "driver version" and Pattern(r"\d{3}\.").match(value):
        gather.put("driver.module_version", value, line)
    elif key == "cuda version" and (pair := version_pair(value)):
        gather.put("driver.cuda_version", pair, line)
    elif state.gpu >= 0:
        number = Pattern(r"\d+(?:\.\d+)?").match(value)
        _put_identity(key, within, value, line, gather, state)
        _put_errors(key, within, value, line, gather, state.gpu)
        _put_reasons(key, within, value, line, state)
        _put_process(key, value, line, gather, state)
        if number:
            _put_number(key, within, float(number[0]), line, gather, state.gpu)
            _put_link(key, within, int(float(number[0])), gather, state.gpu)


def _put_identity(key: str, within: str, value: str, line: Line, gather: Gather, state: _State) -> None:
    said, on = value.lower(), value.lower() == "enabled"
    gpu = state.gpu
    match key, within:
        case "product name", _:
            gather.put_gpu(gpu, line, name=value)
        case (("uuid" | "gpu uuid"), _):
            gather.put_gpu(gpu, line, uuid=value)
        case "compute mode", _:
            gather.put_gpu(gpu, line, compute_mode=said)
        case "persistence mode", _:
            gather.put_gpu(gpu, line, persistence=on)
        case (("current" | "current mig"), place) if "mig" in place or "mig" in key:
            gather.put_gpu(gpu, line, mig_enabled=on)
        case (("pending" | "pending mig"), place) if "mig" in place or "mig" in key:
            gather.put_gpu(gpu, line, mig_pending=on)
        case (("current" | "current ecc"), place) if "ecc mode" in place or "ecc" in key:
            gather.put_gpu(gpu, line, ecc_enabled=on)
        case (("pending" | "pending ecc"), place) if "ecc mode" in place or "ecc" in key:
            gather.put_gpu(gpu, line, ecc_pending=on)
        case (("license status" | "vgpu license status"), _):
            gather.put_gpu(gpu, line, licensed=not said.startswith("unlicensed"))
        case "gpu recovery action", _ if said in ACTIONS:
            gather.put_gpu(gpu, line, recovery_action=ACTIONS[said])
        case "reset required", _ if said == "yes":
            gather.put_gpu(gpu, line, recovery_action=ACTIONS["reset"])
        case "drain and reset recommended", _ if said == "yes":
            gather.put_gpu(gpu, line, recovery_action=ACTIONS["drain and reset"])
        case "performance state", _ if Pattern(r"P\d{1,2}").fullmatch(value):
            gather.put_gpu(gpu, line, performance_state=int(value[1:]))
        case _, place if "fabric" in place:
            _put_fabric(key, place, value, line, gather, gpu)
        case _:
            pass


def _put_fabric(key: str, within: str, value: str, line: Line, gather: Gather, gpu: int) -> None:
    if key == "state":
        gather.put_gpu(gpu, line, fabric_state=value.lower())
    elif key == "status" or "health" in within:
        unwell = value.lower() in _UNWELL if "health" in within else value.lower() != "success"
        result, message = ("fail", f"{key.capitalize()}: {value}") if unwell else ("pass", "")
        test = DeviceTest(tool=FABRIC, name=key, result=result, gpu=gpu, message=message, origin=line.origin)
        gather.put_test(test)


def _put_errors(key: str, within: str, value: str, line: Line, gather: Gather, gpu: int) -> None:
    number = int(value) if value.isdecimal() else None
    yes = value.lower() == "yes"
    if "remapped rows" in within:
        if key == "pending":
            gather.put_gpu(gpu, line, rows_remap_pending=yes)
        elif key.startswith(("remapping failure", "failure")):
            gather.put_gpu(gpu, line, rows_remap_failed=yes)
        elif key.startswith("uncorrectable") and number is not None:
            gather.put_gpu(gpu, line, rows_remapped_uncorrectable=number)
    elif key in ("pending page blacklist", "pending retirement") or (key == "pending" and "retired pages" in within):
        gather.put_gpu(gpu, line, retired_pages_pending=yes)
    elif key == "sram threshold exceeded":
        gather.put_gpu(gpu, line, sram_threshold_exceeded=yes)
    elif "volatile" in within and number is not None and "uncorrectable" in f"{key} {within}":
        gather.put_gpu(gpu, line, ecc_uncorrected_volatile=number)
    elif "aggregate" in within and number is not None and "uncorrectable" in f"{key} {within}":
        gather.put_gpu(gpu, line, ecc_uncorrected_aggregate=number)


def _put_reasons(key: str, within: str, value: str, line: Line, state: _State) -> None:
    """Collect the active reasons for slow clocks; a list without an active one means that nothing slows them."""
    if not ("reasons" in within and "counters" not in within and value.lower() in ("active", "not active")):
        return
    reasons, _ = state.reasons.setdefault(state.gpu, ({}, line))
    if value.lower() == "active" and key != "idle":
        reasons[key.replace(" ", "_")] = None


def _put_process(key: str, value: str, line: Line, gather: Gather, state: _State) -> None:
    if key in ("process id", "pid"):
        state.process = {"pid": value}
    elif key in ("name", "process name") and state.process:
        state.process["name"] = value.replace("\\", "/").split()[0].rsplit("/", 1)[-1]
    elif key in ("used gpu memory", "used memory") and state.process.get("pid", "").isdecimal():
        used = Pattern(r"\d+").match(value)
        held = int(used[0]) * 1024**2 if used else Absent("the driver does not say")
        name = state.process.get("name", Absent("not named"))
        gather.put_process(state.gpu, GpuProcess(pid=int(state.process["pid"]), memory_bytes=held, name=name), line)
        state.process = {}


_MIB = {"total": "memory_total_bytes", "used": "memory_used_bytes", "free": "memory_free_bytes"}
_CELSIUS = {
    "gpu current temp": "temperature_c",
    "gpu temp": "temperature_c",
    "gpu slowdown temp": "temperature_slowdown_c",
    "gpu temp slow threshold": "temperature_slowdown_c",
    "gpu t.limit temp": "temperature_margin_c",
}
_WATTS = {
    "power draw": "power_w",
    "average power draw": "power_w",
    "instantaneous power draw": "power_w",
    "current power limit": "power_limit_w",
    "enforced power limit": "power_limit_w",
    "default power limit": "power_limit_default_w",
}


def _put_number(key: str, within: str, number: float, line: Line, gather: Gather, gpu: int) -> None:
    if "fb memory usage" in within and key in _MIB:
        gather.put_gpu(gpu, line, **{_MIB[key]: int(number) * 1024**2})
    elif "bar1 memory usage" in within and key == "total":
        gather.put_gpu(gpu, line, bar1_total_bytes=int(number) * 1024**2)
    elif key in _CELSIUS:
        gather.put_gpu(gpu, line, **{_CELSIUS[key]: int(number)})
    elif key in _WATTS and "module" not in within and "memory" not in within:
        gather.put_gpu(gpu, line, **{_WATTS[key]: number})
    elif (within.endswith("utilization") and key == "gpu") or key == "gpu util":
        gather.put_gpu(gpu, line, utilization_percent=int(number))
    elif key in ("sm", "sm clock", "memory", "mem clock"):
        kind = "sm" if key.startswith("sm") else "memory"
        if within.startswith("clocks") and "reasons" not in within:
            gather.put_gpu(gpu, line, **{f"{kind}_clock_mhz": int(number)})
        elif within.startswith("max clocks"):
            gather.put_gpu(gpu, line, **{f"{kind}_clock_max_mhz": int(number)})


_LINK = {
    "pcie generation": {"max": "generation_max", "current": "generation", "device current": "generation",
                        "device max": "generation_gpu_max"},
    "link width": {"max": "width_max", "current": "width"},
}  # fmt: skip


def _put_link(key: str, within: str, number: int, gather: Gather, gpu: int) -> None:
    for place, names in _LINK.items():
        if place in within and key in names:
            gather.put_link(gpu, **{names[key]: number})
    if key in ("replays since reset", "replay counter"):
        gather.put_link(gpu, replays=number)
