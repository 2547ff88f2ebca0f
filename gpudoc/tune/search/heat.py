"""Disturbances of a GPU during a trial, heat or another process: timings under them cannot be compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from gpudoc.bench.telemetry import Telemetry
from gpudoc.facts.gpu_counters import GpuCounters, open_counters
from gpudoc.facts.identify import gpu_at
from gpudoc.facts.model import Absent, Machine
from gpudoc.tune.trial.messages import Disturbance, Trial

# the power limit is left out: a card that reaches it does so in every trial
_HEAT = frozenset({"hw_slowdown", "sw_thermal", "hw_thermal", "hw_power_brake"})
_LOOK_S = 0.2

Read = Callable[[], GpuCounters]


def readers_of(ordinals: Iterable[int], machine: Machine) -> tuple[Read, ...]:
    """Functions that read the counters of these GPUs (CUDA's numbers), if NVML reports them."""
    gpus = (gpu_at(ordinal, machine) for ordinal in ordinals)
    addresses = [gpu.pci_address for gpu in gpus if gpu is not None and not isinstance(gpu.pci_address, Absent)]
    readers = (open_counters(address) for address in addresses)
    return tuple(read for read in readers if not isinstance(read, Absent))


def watched(run: Callable[[], Trial], readers: Sequence[Read]) -> Trial:
    """The trial of `run`, with the largest share of time in which heat cut the clocks of one of the GPUs, and the
    largest share in which another process computed on one."""
    telemetries = [Telemetry(read, interval_s=_LOOK_S) for read in readers]
    for telemetry in telemetries:
        telemetry.start()
    try:
        trial = run()
    finally:
        for telemetry in telemetries:
            telemetry.stop()
    seen = [[look.counters for look in telemetry.looks] for telemetry in telemetries]
    found: dict[Disturbance, list[float | None]] = {
        "hot_share": [_share_hot(looks) for looks in seen],
        "neighbour_share": [_share_joint(looks) for looks in seen],
    }
    known = {name: [share for share in shares if share is not None] for name, shares in found.items()}
    told = {name: max(shares) for name, shares in known.items() if shares}
    return trial.model_copy(update={"measured": {**trial.measured, **told}}) if told else trial


def _share_hot(looks: Sequence[GpuCounters]) -> float | None:
    """The share of readings of a working GPU that showed heat; None if the GPU never worked."""
    reasons = [look.throttle_reasons for look in looks if not isinstance(look.throttle_reasons, Absent)]
    at_work = [one for one in reasons if "gpu_idle" not in one]
    return round(sum(not _HEAT.isdisjoint(one) for one in at_work) / len(at_work), 4) if at_work else None


def _share_joint(looks: Sequence[GpuCounters]) -> float | None:
    """The share of readings with more working processes than the trial's own one; None if they are not counted.

    With MIG the driver also lists the processes of the card's other instances.
    """
    counts = [look.num_processes for look in looks if not isinstance(look.num_processes, Absent)]
    return round(sum(count > 1 for count in counts) / len(counts), 4) if counts else None
