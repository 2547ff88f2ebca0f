"""One rank of an all-reduce: times it over sizes; rank 0 prints what it saw as JSON."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING

from gpudoc.process.lifetime import die_with_parent
from gpudoc.units import MIB

if TYPE_CHECKING:
    import torch

WARM_UP, REPEATS = 3, 10
READY = "ready to join"


def main() -> None:
    """Arguments: rank, ranks, parent's pid, file to meet in, backend, kind of device, and the sizes in bytes.

    Every rank prints READY when it is about to join; rank 0 ends with one line {bytes: [seconds, ...]}.
    """
    rank, ranks, parent, meeting, backend, kind, *sizes = sys.argv[1:]
    die_with_parent(int(parent))
    import torch
    import torch.distributed as dist

    device = torch.device(f"cuda:{rank}" if kind == "cuda" else "cpu")
    if kind == "cuda":
        torch.cuda.set_device(device)
    print(READY, flush=True)  # noqa: T201  the parent reads this line
    dist.init_process_group(backend, init_method=f"file://{meeting}", rank=int(rank), world_size=int(ranks))
    times: dict[str, list[float]] = {}
    for size in sizes:
        times[size] = _time_all_reduce(torch.ones(int(size) // 4, device=device), kind)
    if rank == "0":
        print(json.dumps(times), flush=True)  # noqa: T201  the parent reads this line
    dist.destroy_process_group()


def _time_all_reduce(tensor: torch.Tensor, kind: str) -> list[float]:
    import torch
    import torch.distributed as dist

    def wait() -> None:
        if kind == "cuda":
            torch.cuda.synchronize()

    seconds = []
    for repeat in range(WARM_UP + REPEATS):
        tensor.fill_(1.0)
        dist.barrier()
        wait()
        started = time.perf_counter()
        dist.all_reduce(tensor)
        wait()
        if repeat >= WARM_UP:
            seconds.append(time.perf_counter() - started)
    if not bool((tensor == dist.get_world_size()).all()):
        raise RuntimeError("the sum of ones over all ranks is not the number of ranks")
    return seconds


def bus_gb_per_s(size: int, seconds: float, ranks: int) -> float:
    """Bus bandwidth as nccl-tests defines it: bytes / time × 2 (n - 1) / n."""
    return size / 1e9 / seconds * 2 * (ranks - 1) / ranks


SIZES = (1 * MIB, 16 * MIB, 256 * MIB)

if __name__ == "__main__":
    main()
