"""Facts of a slow rank about itself: host, its GPU's clocks, throttling and link, and its wait for a CPU."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path
from time import monotonic

import torch

from gpudoc.facts.gpu_counters import open_counters
from gpudoc.facts.model import Absent

# CPU time and time in the queue for a CPU of the main thread, in nanoseconds
_SCHEDULED = Path("/proc/self/schedstat")


class RankCondition:
    """Each look covers the time since the last look, the first one the time since the creation of this object."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._queued_s, self._began = _queued_s(), monotonic()

    def look(self) -> Mapping[str, object]:
        """The known facts about this rank now; unknown ones are left out."""
        queued_s, now = _queued_s(), monotonic()
        found: dict[str, object] = {"host": socket.gethostname()}
        if queued_s is not None and self._queued_s is not None and now > self._began:
            share = (queued_s - self._queued_s) / (now - self._began)
            found["waits_for_a_cpu"] = f"{share:.0%} of the time"
        self._queued_s, self._began = queued_s, now
        return {**found, **(_gpu(self._device) if self._device.type == "cuda" else {})}


def _gpu(device: torch.device) -> dict[str, object]:
    """The GPU's counters (`nvidia-smi -q -d CLOCK,PERFORMANCE`); empty if NVML does not answer."""
    properties = torch.cuda.get_device_properties(device)
    bus = getattr(properties, "pci_bus_id", None)
    if bus is None:
        return {}
    domain, number = getattr(properties, "pci_domain_id", 0), getattr(properties, "pci_device_id", 0)
    read = open_counters(f"{domain:04x}:{bus:02x}:{number:02x}.0")
    if isinstance(read, Absent):
        return {}
    seen = read()
    found: dict[str, object] = {"gpu": f"{device.index or 0} ({properties.name})"}
    if not isinstance(seen.sm_clock_mhz, Absent):
        found["sm_clock_mhz"] = seen.sm_clock_mhz
    if not isinstance(seen.temperature_c, Absent):
        found["temperature_c"] = seen.temperature_c
    if not isinstance(seen.throttle_reasons, Absent):
        found["throttled"] = ", ".join(seen.throttle_reasons) or "no"
    if not isinstance(seen.link_generation, Absent) and not isinstance(seen.link_width, Absent):
        found["link"] = f"PCIe {seen.link_generation} x{seen.link_width}"
    return found


def _queued_s() -> float | None:
    try:
        return int(_SCHEDULED.read_text("ascii").split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return None
