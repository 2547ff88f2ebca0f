"""nvidia-smi: the table and `-L`, whole or in part."""

from __future__ import annotations

from collections.abc import Sequence

from gpudoc.facts.model import GpuProcess
from gpudoc.facts.readers.gather import Gather
from gpudoc.facts.readers.model import Line
from gpudoc.patterns import Pattern

_HEADER = Pattern(r"NVIDIA-SMI\s+(\d{3}\.[\d.]+)")
_DRIVER = Pattern(r"(?:Driver|KMD) Version\s*(?:[:=]\s*)?(\d{3}\.[\d.]*\d)")
_CUDA = Pattern(r"CUDA (?:UMD )?Version\s*(?:[:=]\s*)?(\d{1,2})\.(\d{1,2})")
_ROW = Pattern(
    r"^\W{0,3}\|?\s{1,4}(\d{1,2})\s{1,4}([A-Z][\w. /+-]*?[\w.)])\s{1,}(?:(?:On|Off|N/A|TCC|WDDM|MCDM)\s*)?\|"
    r"\s*([0-9A-Fa-f]{4,8}:[0-9A-Fa-f:.]+)?"
)
_ECC = Pattern(r"\d\s+(?:On|Off)\s*\|\s*(\d+)\s*\|")
_USAGE = Pattern(r"(?<!\d)(\d+)\s*MiB\s*/\s*(\d+)\s*MiB")
_HEAT = Pattern(r"\|(?:\s*(?:\d+%|N/A|ERR!))?\s+(\d{1,3})C\s+P(\d{1,2})\s+(?:(\d+)W|N/A|\S+)\s*/\s*(?:(\d+)W|N/A|\S+)")
_LOAD = Pattern(r"\|\s*(\d{1,3})%\s+(Default|E\. Process|E\. Thread|Prohibited|Exclusive\w*)\s*\|")
_PROCESS = Pattern(
    r"^\W{0,4}\|?\s*(\d{1,2})\s+(?:(?:N/A|\d+)\s+(?:N/A|\d+)\s+)?(\d{1,8})\s+([CGM+]{1,3})\s+(\S(?:.*?\S)?)\s+(\d+)\s*MiB"
)
_LISTED = Pattern(r"^\W{0,4}GPU (\d{1,2}):\s*(\S(?:.*?\S)?)\s*\(UUID:?\s*([\w-]+)")
_MIG_LISTED = Pattern(r"^\s*MIG\s+\d+g\.\d+gb\S*\s+Device")
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


class _State:
    """The reader's position: the GPU of the table row above."""

    def __init__(self) -> None:
        self.gpu = 0


def _read_versions(line: Line, gather: Gather) -> None:
    text = line.text
    driver = _DRIVER.search(text)
    header = _HEADER.search(text)
    if header or (driver and "NVIDIA" in text.upper()):
        gather.recognise("nvidia_smi")
    if driver and not Pattern(r"(?i)need|require|at least|>=|minimum").search(text):
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
    if row and (row[3] or Pattern(r"(?i)nvidia|geforce|tesla|quadro|rtx|gtx|titan|[AHBLTV]\d{2,3}").search(row[2])):
        gather.recognise("nvidia_smi")
        state.gpu = int(row[1])
        gather.put_gpu(state.gpu, line, name=row[2].strip())
        if row[3]:
            gather.put_gpu(state.gpu, line, pci_address=row[3])
        errors = _ECC.search(text)
        if errors:
            gather.put_gpu(state.gpu, line, ecc_uncorrected_volatile=int(errors[1]))
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
