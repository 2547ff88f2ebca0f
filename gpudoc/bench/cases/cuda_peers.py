"""Copies from each GPU to every other: which pairs have direct access, and how fast they are."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from gpudoc.bench.cases.checks import check_copy
from gpudoc.bench.gpu import CudaGpu, sample_gpu
from gpudoc.bench.model import Case, Parameter, RawReading
from gpudoc.bench.sampling import Bench, Row
from gpudoc.units import MIB

COPY_BYTES = 256 * MIB
BATCH = 4


def ordered_pairs(num_gpus: int) -> tuple[tuple[int, int], ...]:
    """Every (source, target) pair of two different GPUs."""
    return tuple((a, b) for a in range(num_gpus) for b in range(num_gpus) if a != b)


def run(bench: Bench) -> Iterator[RawReading]:
    """Rows p2p in GB/s for every ordered pair, with direct='yes' if one GPU may read the other's memory."""
    import torch

    pairs = ordered_pairs(bench.plan.num_gpus)
    seconds = bench.point_s(len(pairs))
    for source, target in pairs:
        with torch.cuda.device(source):
            yield _measure(bench, source, target, seconds)
    torch.cuda.set_device(int(bench.device.name.partition(":")[2]))


def _measure(bench: Bench, source: int, target: int, seconds: float) -> RawReading:
    import torch

    direct = "yes" if torch.cuda.can_device_access_peer(target, source) else "no"
    origin = torch.randint(0, 256, (COPY_BYTES,), dtype=torch.uint8, device=f"cuda:{source}")
    arrival = torch.zeros(COPY_BYTES, dtype=torch.uint8, device=f"cuda:{target}")
    # a copy between GPUs runs on the stream of its source, so the events must be recorded there
    sender = CudaGpu(source)
    parameters: dict[str, Parameter] = {"from": source, "to": target, "direct": direct, "bytes": COPY_BYTES}
    row = Row(name="p2p", unit="GB/s", parameters=parameters, device=bench.device.name)

    def batch() -> list[float]:
        times = sender.time_each([lambda: arrival.copy_(origin, non_blocking=True)] * BATCH)
        return [COPY_BYTES / 1e9 / seconds for seconds in times]

    reading = sample_gpu(bench, row, batch, seconds)
    return dataclasses.replace(reading, corrupted=check_copy(origin, arrival))


CASE = Case(
    name="p2p",
    meaning="copies between GPUs",
    share=1.5,
    absent_because=lambda bench: "there is only one GPU" if bench.plan.num_gpus < 2 else "",
    run=run,
    rows={
        "p2p": (
            "Copies from one GPU to another, for each ordered pair; `direct=yes` if one may read the other's memory. "
            "Low on one pair: a link is down, or the path goes through the CPU."
        ),
    },
)
