"""Bandwidth of the GPU's own memory: read, write, copy and triad over buffers far beyond its cache."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from gpudoc.bench.gpu import sample_gpu
from gpudoc.bench.model import Case, RawReading
from gpudoc.bench.sampling import Bench, Row
from gpudoc.units import GIB, MIB

if TYPE_CHECKING:
    from torch import Tensor

SCALAR = 3.0
BATCH = 5


def buffer_bytes(l2_bytes: int, free_bytes: int) -> int:
    """Bytes of each of three buffers: 16 times the cache, at least 512 MiB, at most 2 GiB or a sixth of free memory."""
    wanted = max(512 * MIB, 16 * l2_bytes)
    return min(wanted, 2 * GIB, free_bytes // 6) // 256 * 256


def run(bench: Bench) -> Iterator[RawReading]:
    """Rows device_read, device_write, device_copy, device_triad in GB/s, counted as in STREAM."""
    import torch

    gpu = bench.device
    size = buffer_bytes(gpu.traits.l2_bytes, gpu.memory_free_bytes())
    source, other, target = (torch.rand(size // 4, device=gpu.torch_device) for _ in range(3))
    actions: tuple[tuple[str, int, Callable[[], object]], ...] = (
        ("device_read", 1, source.amax),
        ("device_write", 1, lambda: target.fill_(SCALAR)),
        ("device_copy", 2, lambda: target.copy_(source)),
        ("device_triad", 3, lambda: torch.add(source, other, alpha=SCALAR, out=target)),
    )
    for name, moved, action in actions:
        row = Row(name=name, unit="GB/s", parameters={"bytes": size}, device=gpu.name)

        def batch(action: Callable[[], object] = action, moved: int = moved) -> list[float]:
            return [moved * size / 1e9 / seconds for seconds in gpu.time_each([action] * BATCH)]

        reading = sample_gpu(bench, row, batch, bench.point_s(len(actions)))
        yield dataclasses.replace(reading, corrupted=_check(name, source, other, target))


def _check(name: str, source: Tensor, other: Tensor, target: Tensor) -> str:
    import torch

    match name:
        case "device_write":
            right = bool((target == SCALAR).all())
        case "device_copy":
            right = torch.equal(target, source)
        case "device_triad":
            right = torch.allclose(target[::4099], (source + SCALAR * other)[::4099], rtol=1e-5)
        case _:
            right = True
    return "" if right else f"{name} returned different values from those written"


def _absent_because(bench: Bench) -> str:
    free = bench.device.memory_free_bytes()
    return f"only {free / MIB:.0f} MiB of GPU memory are free" if free < 384 * MIB else ""


CASE = Case(
    name="device_memory",
    meaning="bandwidth of the GPU's memory",
    share=1.5,
    absent_because=_absent_because,
    run=run,
    rows={
        "device_read": "Reads a buffer much larger than the GPU's L2 cache.",
        "device_write": "Fills such a buffer with one value.",
        "device_copy": "Copies one such buffer to another inside the GPU; read and written bytes both count.",
        "device_triad": (
            "STREAM's triad inside the GPU's memory: this bandwidth limits normalisation, activations and the "
            "optimizer."
        ),
    },
)
