"""Judge a running job by the GPU's own counters: waits, launches, copies, clocks, link, neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gpudoc.doctor.causes.job_input import WORTH_TELLING
from gpudoc.doctor.live.device import DeviceUse
from gpudoc.doctor.live.finders import watched
from gpudoc.doctor.live.gain import without
from gpudoc.doctor.live.phases import COMPUTE, DATA, Phase
from gpudoc.doctor.live.say import MODEL, NVML, PROC, STACKS, estimated, finding, percent, spent, worst_place
from gpudoc.doctor.live.shares import JobShares, RankShares, share_inside
from gpudoc.doctor.model import Card, Finding, Observation
from gpudoc.doctor.remedies import do
from gpudoc.facts.model import Absent
from gpudoc.facts.process import Watch
from gpudoc.patterns import Pattern
from gpudoc.units import format_bytes, format_seconds

# a device this busy is the limit, whatever the host waits for; below IDLE it does nothing
BUSY = 0.9
IDLE = 0.03
# shares of the SMs' time: tensor cores do next to nothing below the first, fp32 units do the work above the second
_NO_TENSOR, _MUCH_FP32 = 0.05, 0.3
# replicas of one model need the same memory; the GPU that gathers outputs and computes the loss needs more
UNEVEN = 1.25
_DATA_PARALLEL = Pattern(r"torch/nn/parallel/(data_parallel|parallel_apply)\.py$")
_PASSES_ON = Pattern(r"torch/nn/parallel/(replicate|scatter_gather|comm|_functions)\.py$")


def judge_sync(watch: Watch, lead: RankShares, gpu: DeviceUse) -> Finding | None:
    """The host waits for the device, and then the device waits for the host; a busy device is healthy."""
    share = lead.share(Phase.SYNC)
    # without the waits, host and device work in parallel, and the longer of the two remains
    gain = 1 / max(gpu.busy, 1 - share, 0.05)
    if gpu.busy >= BUSY or share < 0.1 or lead.share(*DATA) > share or gain < 1.1:
        return None
    worst = worst_place(watch, lead, Phase.SYNC)
    title = f"Each step waits for the GPU at {worst}, and the GPU then idles {percent(1 - gpu.busy)} of the time"
    waits = spent(watch, lead, "waiting_for_the_device", "waits_at", Phase.SYNC)
    seen = (*waits, *gpu.observations(), estimated(gain))
    fix = (do(f"Read the value at {worst} only every 50 to 100 steps; keep sums on the GPU in between."),)
    return finding("gpu_sync_each_step", lost=1 - 1 / gain, sure=0.75, title=title, evidence=seen, fix=fix)


def judge_launch(lead: RankShares, gpu: DeviceUse) -> Finding | None:
    """The main thread is busy launching kernels and never waits for the device, which is mostly idle."""
    # the SM counters are better than a guess from the power
    filled = next((share for share in (gpu.sm_active, gpu.power_share) if share is not None), 1.0)
    launching = lead.share(*COMPUTE, Phase.TRANSFER)
    if gpu.busy < IDLE or (gpu.busy >= 0.7 and filled >= 0.45):
        return None
    if launching < 0.6 or lead.share(Phase.SYNC) > 0.1 or lead.cpu < 0.75:
        return None
    busy = f"it is busy {percent(gpu.busy)} of the time, the CPU thread that launches {percent(lead.cpu)}"
    seen = (
        Observation("launching", f"{percent(launching)} of the main thread's time, without waiting", STACKS),
        Observation("main_thread_cpu", percent(lead.cpu), PROC),
        *gpu.observations(),
    )
    title, lost = f"The GPU waits for its next kernel: {busy}", 1 - max(gpu.busy, gpu.power_share or 0.0)
    return finding("launch_bound", lost=lost, sure=0.7, title=title, evidence=seen)


def judge_precision(gpu: DeviceUse) -> Finding | None:
    """A GPU that is busy all the time with products in fp32 while its tensor cores are idle."""
    tensor, fp32 = gpu.tensor_active, gpu.fp32_active
    if gpu.busy < BUSY or tensor is None or fp32 is None or tensor >= _NO_TENSOR or fp32 < _MUCH_FP32:
        return None
    busy = f"The GPU is busy {percent(gpu.busy)} of the time, and its tensor cores {percent(tensor)}"
    seen = (Observation("fp32_units", f"{percent(fp32)} of the SMs' time", NVML), *gpu.observations())
    title = f"{busy}: it computes in float32 without them"
    return finding("tf32_off", lost=fp32, sure=0.7, title=title, evidence=seen)


def judge_copies(watch: Watch, lead: RankShares, gpu: DeviceUse) -> Finding | None:
    """Copies to the device that block the main thread."""
    share = lead.share(Phase.TRANSFER)
    if gpu.busy >= BUSY or share < 0.12:
        return None
    title = f"{percent(share)} of the time the main thread copies batches to the GPU and waits"
    copies = spent(watch, lead, "copying", "copied_at", Phase.TRANSFER)
    gain = estimated(min(without(share), 1 / max(gpu.busy, 0.05)))
    seen = (*copies, *gpu.observations(), *gpu.traffic(), gain)
    return finding("pageable_copies", lost=share, sure=0.7, title=title, evidence=seen)


def judge_throttle(devices: Sequence[DeviceUse]) -> Finding | None:
    """Clocks lowered because of heat, or by the hardware's own brake."""
    worst = max(devices, key=lambda d: d.hot_share)
    if worst.hot_share < 0.1:
        return None
    lost, clock = 0.1, "unknown"
    if worst.clock_mhz and worst.clock_max_mhz:
        lost = 1 - worst.clock_mhz / worst.clock_max_mhz
        clock = f"{worst.clock_mhz:.0f} of {worst.clock_max_mhz:.0f} MHz"
    heat = f"{worst.temperature_c:.0f} °C at most" if worst.temperature_c is not None else "unknown"
    title = f"GPU {worst.index} is too hot: it cuts its clock in {percent(worst.hot_share)} of the time"
    told = (("throttle_reasons", ", ".join(worst.hot_reasons)), ("temperature", heat), ("sm_clock", clock))
    seen = tuple(Observation(fact, value, NVML) for fact, value in told)
    found = finding("thermal_throttle", lost=lost, sure=0.9, title=title, evidence=seen)
    return replace(found, cards=(Card(index=worst.index),))


def judge_link(job: JobShares, devices: Sequence[DeviceUse]) -> Finding | None:
    """A PCIe link slower than GPU and slot allow while the GPU works (an idle GPU lowers it to save power)."""
    worst = min((d for d in devices if d.busy >= 0.2), key=lambda d: d.link_share, default=None)
    if worst is None or worst.link_share > 0.6:
        return None
    now, best = _link(worst.link_now), _link(worst.link_max)
    copying = job.lead.share(Phase.TRANSFER) if job.lead is not None else 0.0
    title = f"GPU {worst.index} works over PCIe {now} where {best} is possible"
    seen = (
        Observation("pcie_link", f"{now} of {best}, under load", NVML),
        Observation("copying", f"{percent(copying)} of the main thread's time", STACKS),
    )
    return finding("pcie_link_degraded", lost=copying, sure=0.8, title=title, evidence=seen)


def _link(link: tuple[int, int] | None) -> str:
    return "unknown" if link is None else f"generation {link[0]} x{link[1]}"


def judge_shared(devices: Sequence[DeviceUse]) -> Finding | None:
    """Another process computes on a GPU that this job uses."""
    strangers = [
        (user.sm_percent, gpu, user)
        for gpu in devices
        for user in gpu.strangers
        if gpu.is_ours and not isinstance(user.sm_percent, Absent) and user.sm_percent >= 10
    ]
    if not strangers:
        return None
    share, gpu, other = max(strangers, key=lambda each: each[0])
    name = "unknown" if isinstance(other.name, Absent) else other.name
    held = "memory unknown" if isinstance(other.memory_bytes, Absent) else format_bytes(other.memory_bytes)
    title = f"Process {other.pid} ({name}) computes on GPU {gpu.index} too: {share:.0f} % of it"
    seen = (Observation("other_process", f"{other.pid} {name}, {held}", NVML), *gpu.observations())
    found = finding("gpu_shared", lost=share / 100, sure=0.85, title=title, evidence=seen)
    return replace(found, cards=(Card(index=gpu.index),))


def judge_memory(devices: Sequence[DeviceUse]) -> Finding | None:
    """GPU memory that grows steadily."""
    growing = [(d.growth.bytes_per_s, d, d.growth) for d in devices if d.growth is not None]
    if not growing:
        return None
    rate, gpu, growth = max(growing, key=lambda each: each[0])
    left = "room unknown"
    if gpu.memory_total_bytes is not None:
        left = format_seconds(max(0.0, gpu.memory_total_bytes - growth.last) / rate)
    title = f"Memory of GPU {gpu.index} grows by {format_bytes(rate)} per second: full in {left}"
    seen = (Observation("memory_used", str(growth), NVML), Observation("time_left", left, MODEL))
    return finding("gpu_memory_leak", lost=0.5, sure=0.75, title=title, evidence=seen)


def judge_cpu_by_mistake(lead: RankShares, devices: Sequence[DeviceUse], gpu: DeviceUse) -> Finding | None:
    """Forward and backward run on the CPU while no GPU of the machine works for the job."""
    ours_idle = all(d.busy < IDLE or (d.strangers and not d.is_ours) for d in devices)
    if not ours_idle or lead.share(*COMPUTE) < 0.3:
        return None
    title, spends = "The job trains on the CPU while the GPU is idle", percent(lead.share(*COMPUTE))
    seen = (Observation("computing_on_the_cpu", f"{spends} of the main thread's time", STACKS), *gpu.observations())
    return finding("training_on_cpu", lost=1.0, sure=0.9, title=title, evidence=seen)


def judge_dataparallel(watch: Watch, lead: RankShares, devices: Sequence[DeviceUse]) -> Finding | None:
    """nn.DataParallel over several GPUs: one GPU gathers for all, and one process launches for all."""
    working = [d for d in devices if d.is_ours or d.busy >= IDLE]
    if len(working) < 2 or share_inside(watch, lead.pid, _DATA_PARALLEL) < 0.05:
        return None
    passing = share_inside(watch, lead.pid, _PASSES_ON)
    first = max(working, key=lambda d: d.memory_used_bytes or 0)
    rest = [d for d in working if d is not first]
    others = sum(d.memory_used_bytes or 0 for d in rest) / len(rest)
    fuller = (first.memory_used_bytes or 0) / others if others else 1.0
    busy = sum(d.busy for d in working) / len(working)
    if fuller < UNEVEN and passing < WORTH_TELLING and first.busy - sum(d.busy for d in rest) / len(rest) < 0.2:
        return None
    title = (
        f"nn.DataParallel drives {len(working)} GPUs from one process: they are busy {percent(busy)} of the "
        f"time, and GPU {first.index} holds {fuller:.1f} times as much memory as the others"
    )
    seen = (
        Observation("memory_used", ", ".join(_held(d) for d in working[:8]), NVML),
        Observation("gpus_busy", ", ".join(f"GPU {d.index}: {percent(d.busy)}" for d in working[:8]), NVML),
        Observation("copying_model_and_batches", f"{percent(passing)} of the main thread's time", STACKS),
        Observation("upper_bound_of_gain", f"{1 / max(busy, 0.05):.1f}x if no GPU waited", MODEL),
    )
    return finding("dataparallel_imbalance", lost=max(passing, 1 - busy), sure=0.85, title=title, evidence=seen)


def _held(device: DeviceUse) -> str:
    used = device.memory_used_bytes
    return f"GPU {device.index}: {format_bytes(used) if used is not None else 'unknown'}"


FINDERS = (
    watched("dataparallel_imbalance", judge_dataparallel),
    watched("gpu_sync_each_step", judge_sync),
    watched("launch_bound", judge_launch),
    watched("tf32_off", judge_precision),
    watched("pageable_copies", judge_copies),
    watched("thermal_throttle", judge_throttle),
    watched("pcie_link_degraded", judge_link),
    watched("gpu_shared", judge_shared),
    watched("gpu_memory_leak", judge_memory),
    watched("training_on_cpu", judge_cpu_by_mistake),
)
