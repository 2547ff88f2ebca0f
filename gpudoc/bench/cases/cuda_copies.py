"""Copies between host and GPU: each direction and both at once, page-locked and ordinary memory, 4 KiB to 1 GiB."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpudoc.bench.cases.checks import check_copy
from gpudoc.bench.gpu import sample_gpu
from gpudoc.bench.model import Case, Parameter, RawReading
from gpudoc.bench.sampling import Bench, Row, sample_point
from gpudoc.units import KIB, MIB, format_bytes

if TYPE_CHECKING:
    from torch import Tensor

SIZES = tuple(4 * KIB * 4**power for power in range(10))  # 4 KiB to 1 GiB
QUICK_SIZES = (4 * KIB, MIB, 16 * MIB, 256 * MIB)
PAGEABLE_SIZES = (64 * KIB, MIB, 16 * MIB, 256 * MIB)
BOTH_SIZES = (16 * MIB, 256 * MIB)
LATENCY_BYTES = 4 * KIB
# several copies form one sample, so that small ones are long enough for the events' resolution (0.5 microseconds)
SAMPLE_BYTES, MAX_COPIES = 64 * MIB, 16
BATCH = 4


@dataclass(frozen=True, slots=True)
class Buffers:
    """Bytes on the host, ordinary and page-locked (None if the system refused), and two buffers on the device.

    The page-locked buffers are only as large as the system locks.
    """

    pageable: Tensor
    pinned: Tensor | None
    pinned_back: Tensor | None
    device_in: Tensor
    device_out: Tensor


def usable_sizes(sizes: Sequence[int], host_bytes: int, device_bytes: int) -> list[int]:
    """The sizes up to an eighth of the host's memory of which two fit into a third of the device's."""
    return [size for size in sizes if size <= host_bytes // 8 and size <= device_bytes // 6]


def run(bench: Bench) -> Iterator[RawReading]:
    """Rows h2d, d2h (GB/s by bytes and kind of host memory), bidirectional (sum of both), and their latency in µs."""
    wanted = QUICK_SIZES if bench.plan.quick else SIZES
    sizes = usable_sizes(wanted, bench.plan.memory_bytes, bench.device.memory_free_bytes())
    for size in wanted:
        if size not in sizes:
            bench.leave_out(f"copies of {format_bytes(size)}", "too little memory is free for the buffers")
    if not sizes:
        return
    buffers = _allocate(bench, sizes)
    pageable = [size for size in PAGEABLE_SIZES if size in sizes]
    both = [size for size in BOTH_SIZES if size in sizes]
    seconds = bench.point_s(2 * len(sizes) + 2 * len(pageable) + len(both) + 2)
    if buffers.pinned is not None:
        yield from _latencies(bench, buffers, seconds)
        locked = buffers.pinned.numel()
        for size in sizes:
            if size <= locked:
                yield from _pinned(bench, buffers, size, seconds)
        for size in both:
            if size <= locked:
                yield _both(bench, buffers, size, seconds)
    for size in pageable:
        yield from _pageable(bench, buffers, size, seconds)


def _allocate(bench: Bench, sizes: Sequence[int]) -> Buffers:
    import torch

    gpu = bench.device
    size = max(sizes)
    pageable = torch.randint(0, 256, (size,), dtype=torch.uint8)
    pinned, back = _pin(bench, pageable, sizes)
    device_in, device_out = (torch.zeros(size, dtype=torch.uint8, device=gpu.torch_device) for _ in range(2))
    device_out.copy_(pageable)
    return Buffers(pageable, pinned, back, device_in, device_out)


def _pin(bench: Bench, pageable: Tensor, sizes: Sequence[int]) -> tuple[Tensor, Tensor] | tuple[None, None]:
    """Two page-locked buffers of the largest of `sizes` that the system locks: WSL and small containers lock little."""
    import torch

    refused, because = 0, ""
    found: tuple[Tensor, Tensor] | tuple[None, None] = (None, None)
    for size in sorted(sizes, reverse=True):
        try:
            found = bench.device.pin(pageable[:size]), bench.device.pin(torch.zeros_like(pageable[:size]))
            break
        except RuntimeError as error:
            refused, because = size, str(error).partition("\n")[0]
    if refused:
        what = "copies from page-locked memory" + ("" if found[0] is None else f" of {format_bytes(refused)} and more")
        bench.leave_out(what, f"the system locks no {format_bytes(refused)}: {because}")
    return found


def _pinned(bench: Bench, buffers: Buffers, size: int, seconds: float) -> Iterator[RawReading]:
    assert buffers.pinned is not None
    assert buffers.pinned_back is not None
    pairs = (
        ("h2d", buffers.device_in[:size], buffers.pinned[:size]),
        ("d2h", buffers.pinned_back[:size], buffers.device_out[:size]),
    )
    copies = max(1, min(MAX_COPIES, SAMPLE_BYTES // size))
    for name, target, source in pairs:
        row = _row(bench, name, size, "pinned")

        def once(target: Tensor = target, source: Tensor = source) -> None:
            for _ in range(copies):
                target.copy_(source, non_blocking=True)

        def batch(once: Callable[[], None] = once) -> list[float]:
            return [copies * size / 1e9 / seconds for seconds in bench.device.time_each([once] * BATCH)]

        reading = sample_gpu(bench, row, batch, seconds)
        yield dataclasses.replace(reading, corrupted=check_copy(source, target))
        target.zero_()


def _both(bench: Bench, buffers: Buffers, size: int, seconds: float) -> RawReading:
    assert buffers.pinned is not None
    assert buffers.pinned_back is not None
    to_device, from_host = buffers.device_in[:size], buffers.pinned[:size]
    to_host, from_device = buffers.pinned_back[:size], buffers.device_out[:size]
    copies = max(1, min(MAX_COPIES, SAMPLE_BYTES // size)) * 2
    alone: list[tuple[float, float]] = []

    def down() -> None:
        for _ in range(copies):
            to_device.copy_(from_host, non_blocking=True)

    def up() -> None:
        for _ in range(copies):
            to_host.copy_(from_device, non_blocking=True)

    def batch() -> list[float]:
        both_s, down_s, up_s = bench.device.time_pair(down, up)
        alone.append((copies * size / 1e9 / down_s, copies * size / 1e9 / up_s))
        return [2 * copies * size / 1e9 / both_s]

    reading = sample_gpu(bench, _row(bench, "bidirectional", size, "pinned"), batch, seconds)
    middle = sorted(alone)[len(alone) // 2]
    context = {**reading.context, "h2d_gb_per_s": middle[0], "d2h_gb_per_s": middle[1]}
    wrong = check_copy(from_host, to_device) or check_copy(from_device, to_host)
    return dataclasses.replace(reading, context=context, corrupted=wrong)


def _pageable(bench: Bench, buffers: Buffers, size: int, seconds: float) -> Iterator[RawReading]:
    """Time copies of ordinary memory: the host copies through a staging buffer, so only its own clock sees it all."""
    host = buffers.pageable[:size].clone()
    pairs = (("h2d", buffers.device_in[:size], host), ("d2h", host, buffers.device_out[:size]))
    for name, target, source in pairs:

        def once(target: Tensor = target, source: Tensor = source) -> float:
            started = time.perf_counter()
            target.copy_(source)
            bench.device.synchronize()
            return size / 1e9 / (time.perf_counter() - started)

        reading = sample_point(bench, _row(bench, name, size, "pageable"), once, seconds)
        yield dataclasses.replace(reading, corrupted=check_copy(source, target))


def _latencies(bench: Bench, buffers: Buffers, seconds: float) -> Iterator[RawReading]:
    assert buffers.pinned is not None
    host, device = buffers.pinned[:LATENCY_BYTES], buffers.device_in[:LATENCY_BYTES]
    for name, target, source in (("h2d_latency", device, host), ("d2h_latency", host, device)):

        def once(target: Tensor = target, source: Tensor = source) -> float:
            started = time.perf_counter()
            target.copy_(source, non_blocking=True)
            bench.device.synchronize()
            return (time.perf_counter() - started) * 1e6

        parameters: dict[str, Parameter] = {"bytes": LATENCY_BYTES, "host": "pinned"}
        row = Row(name=name, unit="µs", parameters=parameters, device=bench.device.name, better="lower")
        yield sample_point(bench, row, once, seconds / 2)


def _row(bench: Bench, name: str, size: int, host: str) -> Row:
    return Row(name=name, unit="GB/s", parameters={"bytes": size, "host": host}, device=bench.device.name)


CASE = Case(
    name="copies",
    meaning="copies between host and GPU",
    share=4.0,
    absent_because=lambda bench: "the GPU shares the host's memory" if bench.device.traits.integrated else "",
    run=run,
    rows={
        "h2d": (
            "Copies from host to GPU (H2D), by size, from page-locked (`pinned`) and ordinary (`pageable`) memory: "
            "how fast batches reach the GPU. Low: the PCIe link has fewer lanes or an older generation than the card "
            "and slot support."
        ),
        "d2h": "The same from GPU to host (D2H): how fast checkpoints and results come back.",
        "bidirectional": "Both directions at once, added up. A full-duplex link comes close to the sum of the two.",
        "h2d_latency": "How long a tiny copy to the GPU takes to arrive.",
        "d2h_latency": "How long a tiny copy from the GPU takes: the minimum cost of `.item()`.",
    },
)
