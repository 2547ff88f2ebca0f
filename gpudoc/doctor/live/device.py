"""The GPUs of a watched job as averages over the watch; values that NVML did not give stay None."""

from __future__ import annotations

from collections.abc import Sequence

from gpudoc.doctor.live.say import NVML, percent
from gpudoc.doctor.live.trend import Growth, grows
from gpudoc.doctor.model import Observation
from gpudoc.facts.model import Absent, Fact, known
from gpudoc.facts.process import GpuTrack, GpuUser, Watch
from gpudoc.frozen import dataclass

HOT = ("hardware slowdown", "software thermal slowdown", "hardware thermal slowdown", "power brake")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceUse:
    """One GPU: shares of the time 0 to 1, the most memory used, and averages of the rest.

    `sm_active` says how much of the card works, `tensor_active` and the like which parts of it; None if its counters
    cannot be read. `strangers` are processes on the GPU that are not part of the job.
    """

    index: int
    name: str
    busy: float
    power_share: float | None
    clock_mhz: float | None
    clock_max_mhz: float | None
    temperature_c: float | None
    sm_active: float | None
    tensor_active: float | None
    dram_active: float | None
    fp32_active: float | None
    hot_share: float
    hot_reasons: tuple[str, ...]
    link_now: tuple[int, int] | None
    link_max: tuple[int, int] | None
    rx_bytes_per_s: float | None
    memory_total_bytes: int | None
    memory_used_bytes: int | None
    growth: Growth | None
    strangers: tuple[GpuUser, ...]
    is_ours: bool

    @property
    def link_share(self) -> float:
        """Rate of the link as a share of the best: each generation doubles it, and lanes multiply it."""
        if self.link_now is None or self.link_max is None:
            return 1.0
        return float(2.0 ** (self.link_now[0] - self.link_max[0]) * self.link_now[1] / self.link_max[1])

    def observations(self) -> tuple[Observation, ...]:
        """How busy the GPU is, by kernels, by its counters and by power."""
        parts = (
            ("SMs", self.sm_active), ("tensor cores", self.tensor_active), ("memory bandwidth", self.dram_active),
            ("power", self.power_share),
        )  # fmt: skip
        told = "".join(f", {name} {percent(share)}" for name, share in parts if share is not None)
        limit = " of its limit" if self.power_share is not None else ""
        return (Observation("gpu_busy", f"GPU {self.index}: {percent(self.busy)} of the time{told}{limit}", NVML),)

    def traffic(self) -> tuple[Observation, ...]:
        """The rate of data received over PCIe."""
        if self.rx_bytes_per_s is None:
            return ()
        return (Observation("pcie_received", f"{self.rx_bytes_per_s / 1e9:.2f} GB/s", NVML),)


def summarise_devices(watch: Watch) -> Fact[tuple[DeviceUse, ...]]:
    """The job's GPUs with at least one sample, or all sampled ones if none is the job's; else Absent, with reason."""
    if isinstance(watch.gpus, Absent):
        return watch.gpus
    ours = {track.pid for track in watch.processes}
    used = tuple(_use(gpu, ours) for gpu in watch.gpus if gpu.moments)
    return tuple(device for device in used if device.is_ours) or used or Absent("no GPU was sampled")


def _use(gpu: GpuTrack, ours: set[int]) -> DeviceUse:
    moments = gpu.moments
    users = known(gpu.users) or ()
    hot = [set(m.throttle_reasons) & set(HOT) for m in moments if isinstance(m.throttle_reasons, tuple)]
    power, limit = _mean([m.power_w for m in moments]), known(gpu.power_limit_w)
    links = [
        (m.pcie_generation, m.pcie_width)
        for m in moments
        if isinstance(m.pcie_generation, int) and isinstance(m.pcie_width, int)
    ]
    generation, width = known(gpu.pcie_generation_max), known(gpu.pcie_width_max)
    memory = [(m.time_s, m.memory_used_bytes) for m in moments if isinstance(m.memory_used_bytes, int)]
    return DeviceUse(
        index=gpu.index,
        name=known(gpu.name) or "GPU",
        busy=(_mean([m.utilization_percent for m in moments]) or 0.0) / 100,
        power_share=power / limit if power is not None and limit else None,
        clock_mhz=_mean([m.sm_clock_mhz for m in moments]),
        clock_max_mhz=known(gpu.sm_clock_max_mhz),
        temperature_c=max((m.temperature_c for m in moments if isinstance(m.temperature_c, int)), default=None),
        sm_active=_share([m.sm_active_percent for m in moments]),
        tensor_active=_share([m.tensor_active_percent for m in moments]),
        dram_active=_share([m.dram_active_percent for m in moments]),
        fp32_active=_share([m.fp32_active_percent for m in moments]),
        hot_share=sum(bool(h) for h in hot) / len(hot) if hot else 0.0,
        hot_reasons=tuple(sorted(set().union(*hot))) if hot else (),
        # the best link seen, since a GPU that idles between two moments lowers it
        link_now=max(links, default=None),
        link_max=None if generation is None or width is None else (generation, width),
        rx_bytes_per_s=_mean([m.pcie_rx_bytes_per_s for m in moments]),
        memory_total_bytes=known(gpu.memory_total_bytes),
        memory_used_bytes=max((size for _, size in memory), default=None),
        growth=grows(memory),
        strangers=tuple(user for user in users if user.pid not in ours),
        is_ours=any(user.pid in ours for user in users),
    )


def _share(percents: Sequence[Fact[float]]) -> float | None:
    mean = _mean(percents)
    return None if mean is None else mean / 100


def _mean(values: Sequence[Fact[float] | Fact[int]]) -> float | None:
    told = [float(v) for v in values if not isinstance(v, Absent)]
    return sum(told) / len(told) if told else None
