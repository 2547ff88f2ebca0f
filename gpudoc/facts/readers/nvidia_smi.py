"""nvidia-smi: the table, `-L`, `-q` and `-x`, whole or in part."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gpudoc.facts.model import GpuProcess
from gpudoc.facts.patterns import Pattern
from gpudoc.facts.readers.gather import Gather, stated, version_pair
from gpudoc.facts.readers.model import Line

_HEADER = Pattern(r"NVIDIA-SMI\s+(\d{3}\.[\d.]+)")
_DRIVER = Pattern(r"(?:Driver|KMD) Version\s*[:=]?\s*(\d{3}\.[\d.]*\d)")
_CUDA = Pattern(r"CUDA (?:UMD )?Version\s*[:=]?\s*(\d{1,2})\.(\d{1,2})")
_ROW = Pattern(
    r"^\W{0,3}\|?\s{1,4}(\d{1,2})\s{1,4}([A-Z][\w. /+-]*?[\w.)])\s{1,}(?:On|Off|N/A|TCC|WDDM|MCDM)?\s*\|"
    r"\s*([0-9A-Fa-f]{4,8}:[0-9A-Fa-f:.]+)?"
)
_USAGE = Pattern(r"(\d+)\s*MiB\s*/\s*(\d+)\s*MiB")
_HEAT = Pattern(r"\|\s*(?:\d+%|N/A|ERR!)?\s+(\d{1,3})C\s+P(\d{1,2})\s+(?:(\d+)W|N/A|\S+)\s*/\s*(?:(\d+)W|N/A|\S+)")
_LOAD = Pattern(r"\|\s*(\d{1,3})%\s+(Default|E\. Process|E\. Thread|Prohibited|Exclusive\w*)\s*\|")
_PROCESS = Pattern(
    r"^\W{0,4}\|?\s*(\d{1,2})\s+(?:(?:N/A|\d+)\s+(?:N/A|\d+)\s+)?(\d{1,8})\s+([CGM+]{1,3})\s+(\S.*?)\s+(\d+)\s*MiB"
)
_LISTED = Pattern(r"^\W{0,4}GPU (\d{1,2}):\s*(.+?)\s*\(UUID:?\s*([\w-]+)")
_MIG_LISTED = Pattern(r"^\s*MIG\s+\d+g\.\d+gb\S*\s+Device")
_SECTION = Pattern(r"^\W{0,3}GPU ([0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\s*$")
# sections that only -q has: a part of its output is pasted without the line that names the GPU
_ONLY_QUERY = Pattern(
    r"^\s*(?:Ecc Mode|ECC Errors|Remapped Rows|Retired Pages|FB Memory Usage|GPU Link Info|"
    r"Clocks (?:Throttle|Event) Reasons|MIG Mode|vGPU Software Licensed Product)\s*$"
)
_PAIR = Pattern(r"^\s*([A-Za-z][\w .()/-]*?)\s*:\s+(.*)$")
_MODES = {"E. Process": "exclusive_process", "E. Thread": "exclusive_thread", "Prohibited": "prohibited"}


def read(lines: Sequence[Line], gather: Gather) -> None:
    """Put what nvidia-smi says into `gather`."""
    state = _State()
    for line in lines:
        text = line.text
        if "Version" in text:
            _read_versions(line, gather)
        if "|" in text or "MiB" in text:
            _read_table(line, gather, state)
        listed = _LISTED.match(text)
        if listed:
            gather.recognise("nvidia_smi")
            gather.put_gpu(int(listed[1]), line, name=listed[2], uuid=listed[3])
            state.gpu = int(listed[1])
        elif _MIG_LISTED.match(text):
            gather.put_gpu(state.gpu, line, mig_enabled=True, mig_instances=1)
        elif "No devices were found" in text:
            gather.recognise("nvidia_smi")
        _read_query(line, gather, state)


class _State:
    """Where the reader stands: the GPU of the table row, the GPU and section of -q."""

    def __init__(self) -> None:
        self.gpu = 0
        self.query_gpu = -1
        self.section: list[tuple[int, str]] = []


def _read_versions(line: Line, gather: Gather) -> None:
    text = line.text
    driver = _DRIVER.search(text)
    header = _HEADER.search(text)
    if header or (driver and "NVIDIA" in text.upper()):
        gather.recognise("nvidia_smi")
    if driver and not re.search(r"(?i)need|require|at least|>=|minimum", text):
        gather.put("driver.module_version", driver[1], line)
    cuda = _CUDA.search(text)
    if cuda and (driver or header):
        gather.put("driver.cuda_version", (int(cuda[1]), int(cuda[2])), line)


def _read_table(line: Line, gather: Gather, state: _State) -> None:
    text = line.text
    process = _PROCESS.match(text)
    if process:
        name = process[4].replace("\\", "/").rsplit("/", 1)[-1]
        held = GpuProcess(pid=int(process[2]), memory_bytes=int(process[5]) * 1024**2, name=name)
        gather.put_process(int(process[1]), held, line)
        return
    row = _ROW.match(text)
    if row and (row[3] or re.search(r"(?i)nvidia|geforce|tesla|quadro|rtx|gtx|titan|[AHBLTV]\d{2,3}", row[2])):
        gather.recognise("nvidia_smi")
        state.gpu = int(row[1])
        gather.put_gpu(state.gpu, line, name=row[2].strip())
        if row[3]:
            gather.put_gpu(state.gpu, line, pci_address=row[3])
        return
    usage = _USAGE.search(text)
    if usage and "|" in text:
        used, total = int(usage[1]) * 1024**2, int(usage[2]) * 1024**2
        gather.put_gpu(
            state.gpu, line, memory_used_bytes=used, memory_total_bytes=total, memory_free_bytes=total - used
        )
    heat = _HEAT.search(text)
    if heat:
        gather.put_gpu(state.gpu, line, temperature_c=int(heat[1]), performance_state=int(heat[2]))
        if heat[3] and heat[4]:
            gather.put_gpu(state.gpu, line, power_w=float(heat[3]), power_limit_w=float(heat[4]))
    load = _LOAD.search(text)
    if load:
        mode = _MODES.get(load[2], load[2].lower())
        gather.put_gpu(state.gpu, line, utilization_percent=int(load[1]), compute_mode=mode)


def _read_query(line: Line, gather: Gather, state: _State) -> None:
    section = _SECTION.match(line.text)
    if section:
        state.query_gpu += 1
        state.section = []
        gather.recognise("nvidia_smi_q")
        gather.put_gpu(state.query_gpu, line, pci_address=section[1])
        return
    tag = re.match(r"^\s*<(\w+)>([^<]*)</\w+>\s*$", line.text) if "<" in line.text else None
    if '<gpu id="' in line.text:
        state.query_gpu += 1
        gather.recognise("nvidia_smi_x")
        return
    if tag:
        _put_query(tag[1].replace("_", " ").lower(), "", stated(tag[2]), line, gather, state)
        return
    opened = re.match(r"^\s*<(\w+)>\s*$", line.text) if "<" in line.text else None
    if opened:
        state.section = [(0, opened[1].replace("_", " ").lower())]
        return
    if state.query_gpu < 0 and _ONLY_QUERY.match(line.text):
        state.query_gpu = 0
        gather.recognise("nvidia_smi_q")
    if state.query_gpu < 0:
        return
    indent = len(line.text) - len(line.text.lstrip())
    state.section = [s for s in state.section if s[0] < indent]
    pair = _PAIR.match(line.text)
    if pair is None:
        state.section.append((indent, line.text.strip().lower()))
        return
    _put_query(pair[1].lower(), " / ".join(s[1] for s in state.section), stated(pair[2]), line, gather, state)


def _put_query(key: str, within: str, value: str | None, line: Line, gather: Gather, state: _State) -> None:
    if value is None:
        return
    index = max(state.query_gpu, 0)
    within = within or " / ".join(s[1] for s in state.section)
    if key in ("driver version", "cuda version"):
        _put_version(key, value, line, gather)
        return
    if state.query_gpu < 0:
        return
    match key, within:
        case "product name", _:
            gather.put_gpu(index, line, name=value)
        case "uuid" | "gpu uuid", _:
            gather.put_gpu(index, line, uuid=value)
        case "compute mode", _:
            gather.put_gpu(index, line, compute_mode=value.lower())
        case (("current" | "current mig"), place) if "mig" in place or "mig" in key:
            gather.put_gpu(index, line, mig_enabled=value.lower() == "enabled")
        case (("license status" | "vgpu license status"), _):
            gather.put_gpu(index, line, licensed=not value.lower().startswith("unlicensed"))
        case _:
            _put_memory_errors(key, within, value, line, gather, index)
            _put_state(key, within, value, line, gather, index)


def _put_version(key: str, value: str, line: Line, gather: Gather) -> None:
    if key == "driver version" and re.match(r"\d{3}\.", value):
        gather.put("driver.module_version", value, line)
    elif pair := version_pair(value):
        gather.put("driver.cuda_version", pair, line)


def _put_memory_errors(key: str, within: str, value: str, line: Line, gather: Gather, index: int) -> None:
    number = int(value) if value.isdigit() else None
    if "remapped rows" in within:
        if key == "pending":
            gather.put_gpu(index, line, rows_remap_pending=value.lower() == "yes")
        elif key.startswith(("remapping failure", "failure")):
            gather.put_gpu(index, line, rows_remap_failed=value.lower() == "yes")
        elif key.startswith("uncorrectable") and number is not None:
            gather.put_gpu(index, line, rows_remapped_uncorrectable=number)
    elif "volatile" in within and number is not None and "uncorrectable" in f"{key} {within}":
        gather.put_gpu(index, line, ecc_uncorrected_volatile=number)
    elif "aggregate" in within and number is not None and "uncorrectable" in f"{key} {within}":
        gather.put_gpu(index, line, ecc_uncorrected_aggregate=number)


def _put_state(key: str, within: str, value: str, line: Line, gather: Gather, index: int) -> None:
    number = re.match(r"\d+", value)
    if key == "gpu current temp" and number:
        gather.put_gpu(index, line, temperature_c=int(number[0]))
    elif key in ("hw thermal slowdown", "sw thermal slowdown") and value.lower() == "active":
        gather.put_gpu(index, line, throttle_reasons=(key.replace(" ", "_"),))
    elif "fb memory usage" in within and number:
        names = {"total": "memory_total_bytes", "used": "memory_used_bytes", "free": "memory_free_bytes"}
        if key in names:
            gather.put_gpu(index, line, **{names[key]: int(number[0]) * 1024**2})
    elif "pcie generation" in within and number:
        names = {"max": "generation_max", "current": "generation", "device current": "generation"}
        if key in names:
            gather.put_link(index, **{names[key]: int(number[0])})
    elif "link width" in within and number:
        names = {"max": "width_max", "current": "width"}
        if key in names:
            gather.put_link(index, **{names[key]: int(number[0])})
    elif within.startswith("clocks") and key == "sm" and number:
        gather.put_gpu(index, line, sm_clock_mhz=int(number[0]))
    elif within.startswith("max clocks") and key == "sm" and number:
        gather.put_gpu(index, line, sm_clock_max_mhz=int(number[0]))
