"""The cost of starting a kernel: many queued without waiting, and one at a time with waiting."""

from __future__ import annotations

import time
from collections.abc import Iterator

from gpudoc.bench.model import Case, RawReading
from gpudoc.bench.sampling import Bench, Row, sample_point

LAUNCHES = 500


def run(bench: Bench) -> Iterator[RawReading]:
    """Rows launch_queued (µs of the host per kernel, none waited for) and launch_round_trip (µs until it has run)."""
    import torch

    gpu = bench.device
    value = torch.zeros(1, device=gpu.torch_device)

    def queued() -> float:
        gpu.synchronize()
        started = time.perf_counter()
        for _ in range(LAUNCHES):
            value.add_(1.0)
        elapsed = time.perf_counter() - started
        gpu.synchronize()
        return elapsed / LAUNCHES * 1e6

    def round_trip() -> float:
        started = time.perf_counter()
        value.add_(1.0)
        gpu.synchronize()
        return (time.perf_counter() - started) * 1e6

    for name, once in (("launch_queued", queued), ("launch_round_trip", round_trip)):
        row = Row(name=name, unit="µs", parameters={}, device=gpu.name, better="lower")
        yield sample_point(bench, row, once, bench.point_s(2), warm_up=20)


CASE = Case(
    name="launch",
    meaning="cost of starting a kernel",
    share=0.4,
    absent_because=lambda _bench: "",
    run=run,
    rows={
        "launch_queued": (
            "The host's time to launch one kernel without waiting for it. A step of many small kernels takes at "
            "least this long for each."
        ),
        "launch_round_trip": "The time from launching a tiny kernel until it has finished and the host knows.",
    },
)
