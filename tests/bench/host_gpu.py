"""The host in the place of a GPU: runs the GPU cases' own code where there is none. Its figures mean nothing."""

from __future__ import annotations

import time

from gpudoc.bench.gpu import GpuTraits
from gpudoc.bench.sampling import Bench, SamplingPlan
from gpudoc.units import GIB, MIB

TRAITS = GpuTraits(name="host", sm_count=6, l2_bytes=MIB, capability=(9, 0), memory_bytes=GIB)


class HostGpu:
    """Actions run at once and are timed by the host's clock; `pins` is whether, or how many bytes, it page-locks."""

    name = "cuda:0"
    torch_device = "cpu"

    def __init__(self, free_bytes=GIB, traits=TRAITS, pins=True):
        self.traits, self.free_bytes, self.pins = traits, free_bytes, pins
        self.synchronized = 0
        self.log = []

    def wake(self):
        self.log.append("wake")

    def memory_free_bytes(self):
        return self.free_bytes

    def pin(self, tensor):
        if not self.pins or (self.pins is not True and tensor.numel() > self.pins):
            raise RuntimeError("cudaHostAlloc: out of memory")
        return tensor.clone()

    def time_each(self, actions, between=None, spin=True):
        times = []
        for action in actions:
            if between is not None:
                between()
            started = time.perf_counter()
            action()
            times.append(time.perf_counter() - started)
        return times

    def time_pair(self, first, second):
        one, two = self.time_each([first, second])
        return one + two, one, two

    def synchronize(self):
        self.synchronized += 1


def bench(budget_s=0.05, gpu=None, **plan):
    """A Bench for a case under test."""
    fields = {"device": "cuda:0", "quick": True, "memory_bytes": GIB, "threads": 1, **plan}
    return Bench(plan=SamplingPlan(**fields), budget_s=budget_s, gpu=gpu)
