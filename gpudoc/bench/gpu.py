"""The interface of a device for the GPU cases, and the CUDA device behind it: buffers, queued work, and its timing."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from gpudoc.bench.model import RawReading
from gpudoc.bench.sampling import MAX_SAMPLES, MIN_SAMPLES, OVERTIME, Bench, Row, is_tight
from gpudoc.units import MIB

if TYPE_CHECKING:
    import torch

Action = Callable[[], object]

# from rest a card takes some tenths of a second to reach its clocks, above all the memory's
WAKE_S = 1.0
_WAKE_BYTES, _WAKE_COPIES = 64 * MIB, 20
# queueing one operation with its two events costs the host about 20 microseconds; the spin must last longer
_SPIN_CYCLES_PER_ACTION = 100_000
_SPIN_TRIES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuTraits:
    """The properties of a device from torch.cuda.get_device_properties, and how many devices are visible."""

    name: str
    sm_count: int
    l2_bytes: int
    capability: tuple[int, int]
    memory_bytes: int
    integrated: bool = False
    pci_address: str = ""
    count: int = 1


class GpuUnderTest(Protocol):
    """A device under test; the tests put the host in its place to run the cases without one."""

    name: str
    traits: GpuTraits

    @property
    def torch_device(self) -> str:
        """The device string that tensors are made with."""

    def memory_free_bytes(self) -> int:
        """Bytes that can be allocated now."""

    def pin(self, tensor: torch.Tensor) -> torch.Tensor:
        """A page-locked copy of a host tensor; RuntimeError if the system does not lock more memory."""

    def time_each(self, actions: Sequence[Action], between: Action | None = None, spin: bool = True) -> list[float]:
        """Seconds on the device of each action; `between` runs untimed.

        With `spin` all are queued before the first begins; long actions, of which the queue holds few, do not need it.
        """

    def time_pair(self, first: Action, second: Action) -> tuple[float, float, float]:
        """Seconds of two actions that run at once on two streams: both together, the first, the second."""

    def synchronize(self) -> None:
        """Wait for all queued work; raises if the device has failed."""


class CudaGpu:
    """A CUDA device through torch; events around queued work, no synchronisation inside a measured span."""

    def __init__(self, index: int) -> None:
        import torch

        torch.cuda.set_device(index)
        # events and the spin kernel carry no types in torch
        self._cuda: Any = torch.cuda
        self.name = f"cuda:{index}"
        self._index = index
        self.traits = read_traits(index)
        self._streams = (self._cuda.Stream(index), self._cuda.Stream(index))

    @property
    def torch_device(self) -> str:
        """'cuda:N'."""
        return self.name

    def wake(self) -> None:
        """Keep the card copying for WAKE_S, so that the first figure is not measured at the clocks of rest."""
        import torch

        size = min(_WAKE_BYTES, self.memory_free_bytes() // 4)
        source, target = (torch.zeros(size, dtype=torch.uint8, device=self.name) for _ in range(2))
        until = time.monotonic() + WAKE_S
        while time.monotonic() < until:
            for _ in range(_WAKE_COPIES):
                target.copy_(source)
            self.synchronize()

    def memory_free_bytes(self) -> int:
        """Bytes the driver can still give (`nvidia-smi --query-gpu=memory.free`), after torch gave back its cache."""
        import torch

        torch.cuda.empty_cache()
        return int(torch.cuda.mem_get_info(self._index)[0])

    def pin(self, tensor: torch.Tensor) -> torch.Tensor:
        """A page-locked copy of `tensor`."""
        return tensor.pin_memory()

    def time_each(self, actions: Sequence[Action], between: Action | None = None, spin: bool = True) -> list[float]:
        """Seconds of each action by CUDA events; tried again with a longer spin if the host queued too slowly."""
        cuda = self._cuda
        cycles = _SPIN_CYCLES_PER_ACTION * (len(actions) + 2)
        for attempt in range(_SPIN_TRIES):
            spun = cuda.Event()
            events = [[cuda.Event(enable_timing=True) for _ in range(2)] for _ in actions]
            cuda.synchronize(self._index)
            if spin:
                cuda._sleep(cycles)
            spun.record()
            for action, (start, stop) in zip(actions, events, strict=True):
                if between is not None:
                    between()
                start.record()
                action()
                stop.record()
            queued_in_time = not spun.query()
            cuda.synchronize(self._index)
            if not spin or queued_in_time or attempt == _SPIN_TRIES - 1:
                break
            cycles *= 4
        return [start.elapsed_time(stop) / 1e3 for start, stop in events]

    def time_pair(self, first: Action, second: Action) -> tuple[float, float, float]:
        """Seconds from the first start to the last end, and of each action on its own stream."""
        cuda = self._cuda
        begin, end = (cuda.Event(enable_timing=True) for _ in range(2))
        spans = [[cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(2)]
        cuda.synchronize(self._index)
        cuda._sleep(4 * _SPIN_CYCLES_PER_ACTION)
        begin.record()
        for stream, action, (start, stop) in zip(self._streams, (first, second), spans, strict=True):
            stream.wait_event(begin)
            with cuda.stream(stream):
                start.record()
                action()
                stop.record()
        for _, stop in spans:
            cuda.current_stream(self._index).wait_event(stop)
        end.record()
        cuda.synchronize(self._index)
        alone = [start.elapsed_time(stop) / 1e3 for start, stop in spans]
        return begin.elapsed_time(end) / 1e3, alone[0], alone[1]

    def synchronize(self) -> None:
        """Wait for all queued work."""
        import torch

        torch.cuda.synchronize(self._index)


def read_traits(index: int) -> GpuTraits:
    """The properties of CUDA device `index`; attributes that an older torch lacks are left at 0 or ''."""
    import torch

    properties = torch.cuda.get_device_properties(index)
    bus = getattr(properties, "pci_bus_id", None)
    address = ""
    if bus is not None:
        domain, device = getattr(properties, "pci_domain_id", 0), getattr(properties, "pci_device_id", 0)
        address = f"{domain:04x}:{bus:02x}:{device:02x}.0"
    return GpuTraits(
        name=properties.name,
        sm_count=properties.multi_processor_count,
        l2_bytes=int(getattr(properties, "L2_cache_size", 0)),
        capability=(properties.major, properties.minor),
        memory_bytes=properties.total_memory,
        integrated=bool(getattr(properties, "is_integrated", False)),
        pci_address=address,
        count=torch.cuda.device_count(),
    )


def sample_gpu(bench: Bench, row: Row, batch: Callable[[], Sequence[float]], budget_s: float) -> RawReading:
    """One row's reading from `batch`, which gives several samples at once; the first batch warms up and is dropped."""
    began = time.monotonic()
    samples: list[float] = []
    batch()
    while len(samples) < MAX_SAMPLES:
        samples += batch()
        spent = time.monotonic() - began
        if spent > budget_s and (len(samples) >= MIN_SAMPLES or spent > OVERTIME * budget_s):
            break
        if len(samples) >= 3 * MIN_SAMPLES and is_tight(samples):
            break
    return RawReading(
        name=row.name,
        device=row.device,
        parameters=dict(row.parameters),
        unit=row.unit,
        samples=tuple(samples),
        better=row.better,
        context=bench.beside.context(),
        round=bench.round,
        began_s=began,
        ended_s=time.monotonic(),
    )
