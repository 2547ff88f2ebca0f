"""Counters read while a case runs, and the numbers for each reading: its clock, heat, throttling and link."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from gpudoc.bench.model import RawReading
from gpudoc.facts.gpu_counters import GpuCounters, open_counters
from gpudoc.facts.model import Absent, Fact
from gpudoc.stats import median

INTERVAL_S = 0.05
# a reading shorter than this may be between two looks; the nearest looks are used then
MARGIN_S = 0.1
# reasons that are not a fault: an idle card, and clocks that the user has set
HARMLESS = frozenset({"gpu_idle", "application_clocks", "display_clocks"})


@dataclass(frozen=True, slots=True)
class CounterSample:
    """The counters at one moment of the monotonic clock, which parent and worker share."""

    at_s: float
    counters: GpuCounters


@dataclass(slots=True)
class Telemetry:
    """Reads one GPU's counters in a thread of the parent, so that the worker's own loop is not disturbed."""

    read: Callable[[], GpuCounters]
    looks: list[CounterSample] = field(default_factory=list)
    interval_s: float = INTERVAL_S
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Read the counters every `interval_s` until stopped."""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop reading; a read that hangs in the driver is left behind."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=2.0)

    def _run(self) -> None:
        while not self._stop.wait(self.interval_s):
            self.looks.append(CounterSample(time.monotonic(), self.read()))


def open_telemetry(pci_address: str) -> Telemetry | Absent:
    """Started telemetry of the GPU at `pci_address`, or the reason why there is none."""
    if not pci_address:
        return Absent("torch does not report the GPU's PCI address")
    read = open_counters(pci_address)
    if isinstance(read, Absent):
        return read
    telemetry = Telemetry(read)
    telemetry.start()
    return telemetry


def annotate(readings: Iterable[RawReading], looks: Iterable[CounterSample]) -> list[RawReading]:
    """The readings with the counters seen during each; CPU readings and those without counters are unchanged."""
    seen = sorted(looks, key=lambda look: look.at_s)
    return [
        reading
        if reading.device == "cpu"
        else replace(reading, context={**reading.context, **summarise(during(seen, reading))})
        for reading in readings
    ]


def during(looks: list[CounterSample], reading: RawReading) -> list[GpuCounters]:
    """The looks between the reading's begin and end; those just around it if there are none inside."""
    inside = [look.counters for look in looks if reading.began_s <= look.at_s <= reading.ended_s]
    if inside:
        return inside
    begin, end = reading.began_s - MARGIN_S, reading.ended_s + MARGIN_S
    return [look.counters for look in looks if begin <= look.at_s <= end]


def summarise(counters: list[GpuCounters]) -> dict[str, float]:
    """Numbers for a reading's context: medians of clocks, the highest heat and link, shares of throttled looks."""
    context: dict[str, float] = {}
    middle: dict[str, list[Fact[int]] | list[Fact[float]]] = {
        "sm_clock_mhz": [one.sm_clock_mhz for one in counters],
        "memory_clock_mhz": [one.memory_clock_mhz for one in counters],
        "power_w": [one.power_w for one in counters],
    }
    highest: dict[str, list[Fact[int]]] = {
        "temperature_c_max": [one.temperature_c for one in counters],
        "link_generation_max": [one.link_generation for one in counters],
        "link_width_max": [one.link_width for one in counters],
        # gpudoc itself is among them
        "gpu_processes_max": [one.num_processes for one in counters],
    }
    for name, facts in middle.items():
        values = [float(fact) for fact in facts if not isinstance(fact, Absent)]
        if values:
            context[name] = median(values)
    for name, counts in highest.items():
        numbers = [float(fact) for fact in counts if not isinstance(fact, Absent)]
        if numbers:
            context[name] = max(numbers)
    return {**context, **throttle_shares(counters)}


def throttle_shares(counters: list[GpuCounters]) -> Mapping[str, float]:
    """The share of looks that showed each harmful reason, as 'throttled_<reason>_share'."""
    known = [one.throttle_reasons for one in counters if not isinstance(one.throttle_reasons, Absent)]
    reasons = {reason for reasons in known for reason in reasons} - HARMLESS
    return {f"throttled_{reason}_share": sum(reason in one for one in known) / len(known) for reason in sorted(reasons)}
