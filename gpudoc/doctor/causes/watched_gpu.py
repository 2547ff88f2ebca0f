"""What the GPU's own counters say of a running job: idle after waits, launches, copies, clocks, link, neighbours."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from gpudoc.doctor.causes.watched_input import WORTH_TELLING
from gpudoc.doctor.live.device import DeviceUse, summarise_devices
from gpudoc.doctor.live.gain import without
from gpudoc.doctor.live.phases import COMPUTE, DATA, Phase
from gpudoc.doctor.live.say import MODEL, NVML, PROC, STACKS, at_sites, estimated, finding, percent, place
from gpudoc.doctor.live.shares import JobShares, share_inside, summarise
from gpudoc.doctor.model import Evidence, Finder, Finding, Observation, Remedy, Skip
from gpudoc.facts.model import Absent
from gpudoc.facts.process import Watch
from gpudoc.units import format_bytes, format_seconds

# a device this busy is the limit, whatever the host waits for
BUSY = 0.9
IDLE = 0.03
# replicas of one model need the same memory; the GPU that gathers outputs and computes the loss needs more
UNEVEN = 1.25
_DATA_PARALLEL = re.compile(r"torch/nn/parallel/(data_parallel|parallel_apply)\.py$")
_PASSES_ON = re.compile(r"torch/nn/parallel/(replicate|scatter_gather|comm|_functions)\.py$")
Judge = Callable[[Watch, JobShares, Sequence[DeviceUse]], "Finding | None"]


def _with_devices(name: str, judge: Judge) -> Finder:
    def find(evidence: Evidence) -> Iterator[Finding | Skip]:
        watch = evidence.watch
        if watch is None:
            return
        devices = summarise_devices(watch)
        if isinstance(devices, Absent):
            yield Skip(devices.reason)
            return
        found = judge(watch, summarise(watch), devices)
        if found is not None:
            yield found

    return Finder(id=name, find=find, reads="watch")


def _busiest(devices: Sequence[DeviceUse]) -> DeviceUse:
    return max(devices, key=lambda d: d.busy)


def judge_sync(watch: Watch, job: JobShares, devices: Sequence[DeviceUse]) -> Finding | None:
    """The host waits for the device and the device then waits for the host; a busy device is healthy."""
    lead, gpu = job.lead, _busiest(devices)
    if lead is None or gpu.busy >= BUSY:
        return None
    share = lead.share(Phase.SYNC)
    if share < 0.1 or lead.share(*DATA) > share:
        return None
    # with the waits gone host and device work side by side, and the longer of both remains
    gain = 1 / max(gpu.busy, 1 - share, 0.05)
    if gain < 1.1:
        return None
    sites = lead.sites.get(Phase.SYNC, ())
    worst = place(sites[0].frame, watch) if sites else "unknown"
    return finding(
        "gpu_sync_each_step",
        lost=1 - 1 / gain,
        sure=0.75,
        title=f"Each step waits for the GPU at {worst}, and the GPU then idles {percent(1 - gpu.busy)} of the time",
        evidence=(
            Observation("waiting_for_the_device", f"{percent(share)} of the main thread's time", STACKS),
            *at_sites(sites, watch, "waits_at"),
            *gpu.observations(),
            estimated(gain),
        ),
        fix=(Remedy(say=f"Read the value at {worst} every 50 to 100 steps only; keep sums on the GPU in between."),),
    )


def judge_launch(watch: Watch, job: JobShares, devices: Sequence[DeviceUse]) -> Finding | None:
    """The main thread is busy launching kernels and never waits for the device, which has little to do."""
    del watch
    lead, gpu = job.lead, _busiest(devices)
    if lead is None or gpu.busy < IDLE:
        return None
    launching = lead.share(*COMPUTE, Phase.TRANSFER)
    light = gpu.busy < 0.7 or (gpu.power_share is not None and gpu.power_share < 0.45)
    if launching < 0.6 or lead.share(Phase.SYNC) > 0.1 or lead.cpu < 0.75 or not light:
        return None
    lost = max(0.0, 1 - max(gpu.busy, gpu.power_share or 0.0))
    return finding(
        "launch_bound",
        lost=lost,
        sure=0.7,
        title=f"The GPU waits for its next kernel: it is busy {percent(gpu.busy)} of the time, the CPU "
        f"thread that launches "
        f"{percent(lead.cpu)}",
        evidence=(
            Observation("launching", f"{percent(launching)} of the main thread's time, none of it waiting", STACKS),
            Observation("main_thread_cpu", percent(lead.cpu), PROC),
            *gpu.observations(),
        ),
    )


def judge_copies(watch: Watch, job: JobShares, devices: Sequence[DeviceUse]) -> Finding | None:
    """Copies to the device that block the main thread."""
    lead, gpu = job.lead, _busiest(devices)
    if lead is None or gpu.busy >= BUSY:
        return None
    share = lead.share(Phase.TRANSFER)
    if share < 0.12:
        return None
    sites = lead.sites.get(Phase.TRANSFER, ())
    return finding(
        "pageable_copies",
        lost=share,
        sure=0.7,
        title=f"{percent(share)} of the time the main thread copies batches to the GPU and waits for it",
        evidence=(
            Observation("copying", f"{percent(share)} of the main thread's time", STACKS),
            *at_sites(sites, watch, "copied_at"),
            *gpu.observations(),
            *gpu.traffic(),
            estimated(min(without(share), 1 / max(gpu.busy, 0.05))),
        ),
    )


def judge_throttle(watch: Watch, job: JobShares, devices: Sequence[DeviceUse]) -> Finding | None:
    """Clocks cut because of heat, or by the hardware's own brake."""
    del watch, job
    worst = max(devices, key=lambda d: d.hot_share)
    if worst.hot_share < 0.1:
        return None
    known = worst.clock_mhz is not None and worst.clock_max_mhz is not None
    clock = f"{worst.clock_mhz:.0f} of {worst.clock_max_mhz:.0f} MHz" if known else "unknown"
    heat = f"{worst.temperature_c:.0f} °C at most" if worst.temperature_c is not None else "unknown"
    lost = 1 - worst.clock_mhz / worst.clock_max_mhz if worst.clock_mhz and worst.clock_max_mhz else 0.1
    return finding(
        "thermal_throttle",
        lost=lost,
        sure=0.9,
        title=f"GPU {worst.index} is too hot: it cuts its clock in {percent(worst.hot_share)} of the time",
        evidence=(
            Observation("throttle_reasons", ", ".join(worst.hot_reasons), NVML),
            Observation("temperature", heat, NVML),
            Observation("sm_clock", clock, NVML),
        ),
        fix=(
            Remedy(
                say="Look at fans, dust and airflow.",
                run=f"nvidia-smi -i {worst.index} -q -d TEMPERATURE,PERFORMANCE",
            ),
            Remedy(
                say="Let it draw less power instead, at little cost of speed: nvidia-smi -pl for it, within its range.",
                run=f"nvidia-smi -i {worst.index} -q -d POWER",
            ),
        ),
    )


def judge_link(watch: Watch, job: JobShares, devices: Sequence[DeviceUse]) -> Finding | None:
    """A PCIe link below what GPU and slot can do, while the GPU works (an idle one lowers it to save power)."""
    del watch
    low = [d for d in devices if d.link_now is not None and d.link_max is not None and d.busy >= 0.2]
    worst = min(low, key=lambda d: d.link_share, default=None)
    if worst is None or worst.link_share > 0.6 or worst.link_now is None or worst.link_max is None:
        return None
    copying = job.lead.share(Phase.TRANSFER) if job.lead is not None else 0.0
    return finding(
        "pcie_link_degraded",
        lost=copying,
        sure=0.8,
        title=f"GPU {worst.index} works over PCIe {_link(worst.link_now)} where {_link(worst.link_max)} is possible",
        evidence=(
            Observation("pcie_link", f"{_link(worst.link_now)} of {_link(worst.link_max)}, under load", NVML),
            Observation("copying", f"{percent(copying)} of the main thread's time", STACKS),
        ),
    )


def _link(link: tuple[int, int]) -> str:
    return f"generation {link[0]} x{link[1]}"


def judge_shared(watch: Watch, job: JobShares, devices: Sequence[DeviceUse]) -> Finding | None:
    """Another process computes on a GPU that this job uses."""
    del watch, job
    shared = [(d, u) for d in devices if d.is_ours for u in d.strangers if u.sm_percent_or_zero >= 10]
    if not shared:
        return None
    gpu, other = max(shared, key=lambda pair: pair[1].sm_percent_or_zero)
    return finding(
        "gpu_shared",
        lost=other.sm_percent_or_zero / 100,
        sure=0.85,
        title=f"Process {other.pid} ({other.name}) computes on GPU {gpu.index} too: "
        f"{other.sm_percent_or_zero:.0f} % of it",
        evidence=(Observation("other_process", f"{other.pid} {other.name}, {other.memory}", NVML), *gpu.observations()),
        fix=(Remedy(say="Use another GPU, or wait for it.", run=_elsewhere(devices)),),
    )


def _elsewhere(devices: Sequence[DeviceUse]) -> str:
    """The program on GPUs that nobody computes on; a list of all where there is none."""
    free = [str(d.index) for d in devices if not d.is_ours and not d.strangers and d.busy < IDLE]
    # without the order of the bus CUDA numbers unequal GPUs by speed, and not as nvidia-smi does
    order = f"CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES={free[0]}" if free else ""
    return f"{order} python train.py" if free else "nvidia-smi"


def judge_memory(watch: Watch, job: JobShares, devices: Sequence[DeviceUse]) -> Finding | None:
    """GPU memory that grows steadily."""
    del watch, job
    growing = [(d, d.growth) for d in devices if d.growth is not None]
    if not growing:
        return None
    gpu, growth = max(growing, key=lambda pair: pair[1].bytes_per_s)
    left = "room unknown"
    if gpu.memory_total_bytes is not None:
        left = format_seconds(max(0.0, gpu.memory_total_bytes - growth.last) / growth.bytes_per_s)
    return finding(
        "gpu_memory_leak",
        lost=0.5,
        sure=0.75,
        title=f"Memory of GPU {gpu.index} grows by {format_bytes(growth.bytes_per_s)} per second: full in {left}",
        evidence=(
            Observation("memory_used", f"{format_bytes(growth.first)} to {format_bytes(growth.last)}", NVML),
            Observation("time_left", left, MODEL),
        ),
    )


def judge_cpu_by_mistake(watch: Watch, job: JobShares, devices: Sequence[DeviceUse]) -> Finding | None:
    """Forward and backward take their time on the CPU while every GPU of the machine does nothing for the job."""
    lead = job.lead
    ours_idle = all(d.busy < IDLE or (d.strangers and not d.is_ours) for d in devices)
    if lead is None or not ours_idle or lead.share(*COMPUTE) < 0.3:
        return None
    del watch
    return finding(
        "training_on_cpu",
        lost=1.0,
        sure=0.9,
        title="It trains on the CPU, and the GPU does nothing",
        evidence=(
            Observation("computing_on_the_cpu", f"{percent(lead.share(*COMPUTE))} of the main thread's time", STACKS),
            Observation("gpu_busy", f"{percent(_busiest(devices).busy)} ({_busiest(devices).name})", NVML),
        ),
    )


def judge_dataparallel(watch: Watch, job: JobShares, devices: Sequence[DeviceUse]) -> Finding | None:
    """nn.DataParallel over several GPUs: one of them gathers for all, and one process launches for all."""
    lead = job.lead
    working = [d for d in devices if d.is_ours or d.busy >= IDLE]
    if lead is None or len(working) < 2 or share_inside(watch, lead.pid, _DATA_PARALLEL) < 0.05:
        return None
    passing = share_inside(watch, lead.pid, _PASSES_ON)
    first = max(working, key=lambda d: d.memory_used_bytes or 0)
    rest = [d for d in working if d is not first]
    others = sum(d.memory_used_bytes or 0 for d in rest) / len(rest)
    fuller = (first.memory_used_bytes or 0) / others if others else 1.0
    busy = sum(d.busy for d in working) / len(working)
    if fuller < UNEVEN and passing < WORTH_TELLING and first.busy - sum(d.busy for d in rest) / len(rest) < 0.2:
        return None
    return finding(
        "dataparallel_imbalance",
        lost=max(passing, 1 - busy),
        sure=0.85,
        title=f"nn.DataParallel drives {len(working)} GPUs from one process: they are busy {percent(busy)} of the "
        f"time, and GPU {first.index} holds {fuller:.1f} times the memory of the others",
        evidence=(
            Observation("memory_used", ", ".join(_held(d) for d in working[:8]), NVML),
            Observation("gpus_busy", ", ".join(f"GPU {d.index}: {percent(d.busy)}" for d in working[:8]), NVML),
            Observation("copying_model_and_batches", f"{percent(passing)} of the main thread's time", STACKS),
            Observation("upper_bound_of_gain", f"{1 / max(busy, 0.05):.1f}x if no GPU waited", MODEL),
        ),
        fix=(
            Remedy(
                say="Use one process for each GPU: wrap the model in DistributedDataParallel instead.",
                run=f"torchrun --nproc-per-node={len(working)} train.py",
            ),
            Remedy(
                say=f"Compute the loss inside the model's forward until then, so that GPU {first.index} gathers "
                f"a number and not all outputs."
            ),
        ),
    )


def _held(device: DeviceUse) -> str:
    used = device.memory_used_bytes
    return f"GPU {device.index}: {format_bytes(used) if used is not None else 'unknown'}"


FINDERS = (
    _with_devices("dataparallel_imbalance", judge_dataparallel),
    _with_devices("gpu_sync_each_step", judge_sync),
    _with_devices("launch_bound", judge_launch),
    _with_devices("pageable_copies", judge_copies),
    _with_devices("thermal_throttle", judge_throttle),
    _with_devices("pcie_link_degraded", judge_link),
    _with_devices("gpu_shared", judge_shared),
    _with_devices("gpu_memory_leak", judge_memory),
    _with_devices("training_on_cpu", judge_cpu_by_mistake),
)
