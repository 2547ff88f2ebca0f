"""A GPU's counters while something runs on it: clocks, power, temperature, throttle reasons, link, processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from gpudoc.facts.container import ROOT
from gpudoc.facts.files import read_text
from gpudoc.facts.model import NOT_READ, Absent, Fact
from gpudoc.facts.nvidia import read_work, throttle_names
from gpudoc.facts.nvml import Nvml
from gpudoc.facts.telling import Teller
from gpudoc.frozen import dataclass

# nvidia-cuda-mps-server, in the 15 letters that the kernel keeps of a name
_MPS_SERVER = "nvidia-cuda-mps"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuCounters:
    """One look at a GPU (`nvidia-smi -q -d CLOCK,POWER,TEMPERATURE,PERFORMANCE`).

    `num_processes` counts processes with a compute context, without those that had one before the first look and have
    done nothing since.
    """

    sm_clock_mhz: Fact[int] = NOT_READ
    memory_clock_mhz: Fact[int] = NOT_READ
    power_w: Fact[float] = NOT_READ
    temperature_c: Fact[int] = NOT_READ
    throttle_reasons: Fact[tuple[str, ...]] = NOT_READ
    link_generation: Fact[int] = NOT_READ
    link_width: Fact[int] = NOT_READ
    num_processes: Fact[int] = NOT_READ


def open_counters(pci_address: str, root: Path = ROOT) -> Callable[[], GpuCounters] | Absent:
    """A function that reads the counters of the GPU at `pci_address`, or the reason why they cannot be read."""
    try:
        nvml = Nvml(Teller(os.open(os.devnull, os.O_WRONLY)))
    except ImportError as error:
        return Absent(f"nvidia-ml-py cannot be imported: {error}")
    started = nvml.ask("nvmlInit")
    if isinstance(started, Absent):
        return started
    handle = nvml.ask("nvmlDeviceGetHandleByPciBusId", pci_address)
    if isinstance(handle, Absent):
        return handle

    resting = _computing(nvml, handle)

    def read() -> GpuCounters:
        return _read(nvml, handle, root, resting)

    return read


def _computing(nvml: Nvml, handle: object) -> set[int]:
    processes = nvml.ask("nvmlDeviceGetComputeRunningProcesses", handle)
    return set() if isinstance(processes, Absent) else {int(one.pid) for one in processes}


def _read(nvml: Nvml, handle: object, root: Path, resting: set[int]) -> GpuCounters:
    """The counters now; a process that did something since the last look is removed from `resting`."""
    mask = nvml.ask("nvmlDeviceGetCurrentClocksEventReasons", handle)
    if isinstance(mask, Absent):
        mask = nvml.ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
    milliwatts = nvml.ask("nvmlDeviceGetPowerUsage", handle)
    processes = nvml.ask("nvmlDeviceGetComputeRunningProcesses", handle)
    computing = processes if isinstance(processes, Absent) else {int(one.pid) for one in processes}
    if resting and not isinstance(computing, Absent):
        work = read_work(lambda name, *more: nvml.ask_with_code(name, handle, *more), computing)
        resting -= resting if isinstance(work, Absent) else {pid for pid, used in work.items() if used}
    return GpuCounters(
        sm_clock_mhz=nvml.ask("nvmlDeviceGetClockInfo", handle, 1),
        memory_clock_mhz=nvml.ask("nvmlDeviceGetClockInfo", handle, 2),
        power_w=milliwatts if isinstance(milliwatts, Absent) else milliwatts / 1e3,
        temperature_c=nvml.ask("nvmlDeviceGetTemperature", handle, 0),
        throttle_reasons=mask if isinstance(mask, Absent) else throttle_names(mask),
        link_generation=nvml.ask("nvmlDeviceGetCurrPcieLinkGeneration", handle),
        link_width=nvml.ask("nvmlDeviceGetCurrPcieLinkWidth", handle),
        num_processes=computing if isinstance(computing, Absent) else _count(computing - resting, root),
    )


def _count(pids: Iterable[int], root: Path) -> int:
    """The number of processes that compute; the MPS server has a context for its clients but computes nothing."""
    names = [read_text(root, f"proc/{pid}/comm") for pid in pids]
    return sum(isinstance(name, Absent) or not name.startswith(_MPS_SERVER) for name in names)
