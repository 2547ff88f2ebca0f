"""The GPUs of a watched job as averages over the watch; what NVML did not give stays None."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpudoc.doctor.live.say import NVML, percent
from gpudoc.doctor.live.trend import Growth, grows
from gpudoc.doctor.model import Observation
from gpudoc.facts.model import Absent, Fact
from gpudoc.facts.process import GpuTrack, Watch
from gpudoc.units import format_bytes

HOT = ("hardware slowdown", "software thermal slowdown", "hardware thermal slowdown", "power brake")


@dataclass(frozen=True, slots=True)
class Stranger:
    """A process on the GPU that is not part of the job."""

    pid: int
    name: str
    memory: str
    sm_percent_or_zero: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceUse:
    """One GPU: shares of the time 0 to 1, the most memory that was used, averages of the rest."""

    index: int
    name: str
    busy: float
    power_share: float | None
    clock_mhz: float | None
    clock_max_mhz: float | None
    temperature_c: float | None
    hot_share: float
    hot_reasons: tuple[str, ...]
    link_now: tuple[int, int] | None
    link_max: tuple[int, int] | None
    rx_bytes_per_s: float | None
    memory_total_bytes: int | None
    memory_used_bytes: int | None
    growth: Growth | None
    strangers: tuple[Stranger, ...]
    is_ours: bool

    @property
    def link_share(self) -> float:
        """Rate of the link as a share of the best: a generation doubles it, lanes multiply it."""
        if self.link_now is None or self.link_max is None:
            return 1.0
        return float(2.0 ** (self.link_now[0] - self.link_max[0]) * self.link_now[1] / self.link_max[1])

    def observations(self) -> tuple[Observation, ...]:
        """How busy the GPU is, by kernels and by power."""
        power = f", power {percent(self.power_share)} of its limit" if self.power_share is not None else ""
        return (Observation("gpu_busy", f"GPU {self.index}: {percent(self.busy)} of the time{power}", NVML),)

    def traffic(self) -> tuple[Observation, ...]:
        """What came over PCIe."""
        if self.rx_bytes_per_s is None:
            return ()
        return (Observation("pcie_received", f"{self.rx_bytes_per_s / 1e9:.2f} GB/s", NVML),)


def summarise_devices(watch: Watch) -> Fact[tuple[DeviceUse, ...]]:
    """Every GPU with at least one moment; absent with the reason when none was sampled."""
    if isinstance(watch.gpus, Absent):
        return watch.gpus
    ours = {track.pid for track in watch.processes}
    used = tuple(_use(gpu, ours) for gpu in watch.gpus if gpu.moments)
    if not used:
        return Absent("no GPU was sampled")
    mine = tuple(d for d in used if d.is_ours)
    return mine or used


def _use(gpu: GpuTrack, ours: set[int]) -> DeviceUse:
    moments = gpu.moments
    users = gpu.users if isinstance(gpu.users, tuple) else ()
    is_ours = any(u.pid in ours for u in users)
    hot = [set(m.throttle_reasons) & set(HOT) for m in moments if isinstance(m.throttle_reasons, tuple)]
    power = _mean([m.power_w for m in moments])
    limit = gpu.power_limit_w if isinstance(gpu.power_limit_w, float) else None
    links = [
        (m.pcie_generation, m.pcie_width)
        for m in moments
        if isinstance(m.pcie_generation, int) and isinstance(m.pcie_width, int)
    ]
    best = (gpu.pcie_generation_max, gpu.pcie_width_max)
    memory = [(m.time_s, m.memory_used_bytes) for m in moments if isinstance(m.memory_used_bytes, int)]
    return DeviceUse(
        index=gpu.index,
        name=gpu.name if isinstance(gpu.name, str) else "GPU",
        busy=(_mean([m.utilization_percent for m in moments]) or 0.0) / 100,
        power_share=power / limit if power is not None and limit else None,
        clock_mhz=_mean([m.sm_clock_mhz for m in moments]),
        clock_max_mhz=float(gpu.sm_clock_max_mhz) if isinstance(gpu.sm_clock_max_mhz, int) else None,
        temperature_c=max((m.temperature_c for m in moments if isinstance(m.temperature_c, int)), default=None),
        hot_share=sum(bool(h) for h in hot) / len(hot) if hot else 0.0,
        hot_reasons=tuple(sorted(set().union(*hot))) if hot else (),
        # the best link seen: a GPU that idles between two moments lowers it
        link_now=max(links, default=None),
        link_max=(best[0], best[1]) if isinstance(best[0], int) and isinstance(best[1], int) else None,
        rx_bytes_per_s=_mean([m.pcie_rx_bytes_per_s for m in moments]),
        memory_total_bytes=gpu.memory_total_bytes if isinstance(gpu.memory_total_bytes, int) else None,
        memory_used_bytes=max((size for _, size in memory), default=None),
        growth=grows(memory),
        strangers=tuple(
            Stranger(
                u.pid,
                u.name if isinstance(u.name, str) else "unknown",
                format_bytes(u.memory_bytes) if isinstance(u.memory_bytes, int) else "memory unknown",
                u.sm_percent if isinstance(u.sm_percent, float) else 0.0,
            )
            for u in users
            if u.pid not in ours
        ),
        is_ours=is_ours,
    )


def _mean(values: Sequence[Fact[float] | Fact[int]]) -> float | None:
    known = [float(v) for v in values if not isinstance(v, Absent)]
    return sum(known) / len(known) if known else None
