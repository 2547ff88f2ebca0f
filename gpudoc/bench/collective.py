"""One rank of an all-reduce: times it over sizes; rank 0 prints its times as JSON."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from gpudoc.process.imports import uncollected
from gpudoc.process.lifetime import die_with_parent
from gpudoc.units import MIB

if TYPE_CHECKING:
    import torch

Operation = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]
OPERATIONS: tuple[Operation, ...] = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
WARM_UP, REPEATS = 3, 10
READY = "ready to join"


def main() -> None:
    """Arguments: rank, ranks, parent's pid, file for the meeting, backend, kind of device, and the sizes in bytes.

    Every rank prints READY before it joins; rank 0 ends with one line {bytes: [seconds, ...]}.
    """
    rank, ranks, parent, meeting, backend, kind, *sizes = sys.argv[1:]
    die_with_parent(int(parent))
    with uncollected():
        import torch
        import torch.distributed as dist

    device = torch.device(f"cuda:{rank}" if kind == "cuda" else "cpu")
    if kind == "cuda":
        torch.cuda.set_device(device)
    print(READY, flush=True)  # noqa: T201  the parent reads this line
    dist.init_process_group(backend, init_method=f"file://{meeting}", rank=int(rank), world_size=int(ranks))
    times: dict[str, list[float]] = {}
    for size in sizes:
        times[size] = time_collective("all_reduce", int(size), device)
    if rank == "0":
        print(json.dumps(times), flush=True)  # noqa: T201  the parent reads this line
    dist.destroy_process_group()


def time_collective(operation: Operation, size: int, device: torch.device, repeats: int = REPEATS) -> list[float]:
    """Seconds of each of `repeats` on the current group, with `size` bytes as nccl-tests counts them.

    RuntimeError if the received values are not the sent ones.
    """
    import torch
    import torch.distributed as dist

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    fill, exchange, is_right = _prepare(operation, size, device)
    seconds = []
    for repeat in range(WARM_UP + repeats):
        fill()
        dist.barrier()
        wait()
        started = time.perf_counter()
        exchange()
        wait()
        if repeat >= WARM_UP:
            seconds.append(time.perf_counter() - started)
    if not is_right():
        raise RuntimeError(f"{operation} of {size} bytes left other values than were sent")
    return seconds


def _prepare(
    operation: Operation, size: int, device: torch.device
) -> tuple[Callable[[], object], Callable[[], object], Callable[[], bool]]:
    """Three functions: one fills the input, one exchanges it, one checks the result."""
    import torch
    import torch.distributed as dist

    world, rank = dist.get_world_size(), dist.get_rank()
    count = size // 4
    whole, part = torch.ones(count, device=device), torch.ones(max(1, count // world), device=device)
    if operation == "all_reduce":
        return lambda: whole.fill_(1.0), lambda: dist.all_reduce(whole), lambda: bool((whole == world).all())
    if operation == "all_gather":
        return (
            lambda: part.fill_(rank),
            lambda: dist.all_gather_into_tensor(whole, part),
            lambda: bool((whole.view(world, -1) == torch.arange(world, device=device)[:, None]).all()),
        )
    if operation == "reduce_scatter":
        return (
            lambda: whole.fill_(1.0),
            lambda: dist.reduce_scatter_tensor(part, whole),
            lambda: bool((part == world).all()),
        )
    received = torch.empty_like(whole)
    return (
        lambda: whole.fill_(rank),
        lambda: dist.all_to_all_single(received, whole),
        lambda: bool((received.view(world, -1) == torch.arange(world, device=device)[:, None]).all()),
    )


def whole_size(operation: Operation, size: int, ranks: int) -> int:
    """The smallest number of bytes from `size` on that gives every rank the same number of floats."""
    unit = 4 if operation == "all_reduce" else 4 * ranks
    return -(-size // unit) * unit


def bus_gb_per_s(size: int, seconds: float, ranks: int, operation: Operation = "all_reduce") -> float:
    """Bus bandwidth as nccl-tests defines it: bytes / time × (n - 1) / n, and twice that for an all-reduce."""
    crossings = 2 if operation == "all_reduce" else 1
    return size / 1e9 / seconds * crossings * (ranks - 1) / ranks


SIZES = (1 * MIB, 16 * MIB, 256 * MIB)

if __name__ == "__main__":
    main()
