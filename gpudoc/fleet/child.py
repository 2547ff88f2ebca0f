"""The process that has one GPU of a fleet, or one CPU rank: it follows orders, line by line, and nothing waits.

Each order is one JSON line on stdin, each answer ends with one {"event": "done"} or {"event": "failed"} on stdout.
After a failure the process ends, and a new process gets the next order.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from gpudoc.bench.collective import WARM_UP, Operation, bus_gb_per_s, time_collective, whole_size
from gpudoc.bench.cpu_clock import measure_clock_ghz
from gpudoc.bench.documents import reading_to_json
from gpudoc.bench.sampling import MIN_SAMPLES, Bench, OtherLoad, SamplingPlan
from gpudoc.bench.worker import describe_torch, plan_from_json, share_of_time, tell
from gpudoc.process.lifetime import die_with_parent

if TYPE_CHECKING:
    import torch

Order = Mapping[str, Any]

# 8 B to 8 GiB, as nccl-tests counts them
SIZES = tuple(8 * 8**power for power in range(11))
MOST_REPEATS, FEWEST_REPEATS = 20, 3
# buffers of the size that a rank needs in all: also for received data, and for the library's staging
_BUFFERS = 4
_CLOCK_LOOKS = 15
_STEP_BATCH, _STEPS_PER_SAMPLE, _WARM_STEPS = 32, 4, 3


@dataclass(slots=True)
class Post:
    """The objects that a process keeps between orders."""

    bench: Bench
    device: torch.device
    plan: SamplingPlan


def main() -> None:
    """Read the plan with the parent's pid from the first line, then one order per line until stdin ends."""
    plan = plan_from_json(sys.stdin.readline())
    die_with_parent(plan.parent_pid)
    # the output of libraries must not appear between the answers
    sys.stdout = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)
    if plan.bind_cpus:
        os.sched_setaffinity(0, plan.bind_cpus)
    try:
        post = _take_post(plan)
        tell({"event": "ready", "torch": describe_torch()})
        for line in sys.stdin:
            order = json.loads(line)
            DUTIES[order["do"]](post, order)
            tell({"event": "done"})
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        text = str(error).strip().splitlines()[0] if str(error).strip() else ""
        where = f"{os.path.basename(last.filename)}:{last.lineno}"  # noqa: PTH119
        tell({"event": "failed", "because": f"{type(error).__name__}: {text[:300]} ({where})"})
    # a group that has lost a peer cannot be shut down in order
    os._exit(0)


def _take_post(plan: SamplingPlan) -> Post:
    import torch

    from gpudoc.bench.gpu import CudaGpu

    torch.set_num_threads(plan.threads)
    bench = Bench(plan=plan, clock_ghz=measure_clock_ghz if plan.device == "cpu" else lambda: None)
    if plan.device != "cpu":
        bench.gpu = gpu = CudaGpu(int(plan.device.partition(":")[2]))
        tell({"event": "gpu", "values": asdict(gpu.traits)})
    return Post(bench, torch.device(plan.device), plan)


def run_cases(post: Post, order: Order) -> None:
    """Run bench's cases of these names within `seconds` in all; a case that fails is reported, the rest continue."""
    from gpudoc.bench.cases.catalog import cases_for

    names, end = order["cases"], time.monotonic() + order["seconds"]
    if post.bench.gpu is not None and hasattr(post.bench.gpu, "wake"):
        post.bench.gpu.wake()
    bench = post.bench
    bench.plan = replace(post.plan, data=order.get("data", ""))
    # activity of other processes during the wait for this order does not belong to a case
    bench.beside = OtherLoad()
    # a GPU's list ends with the CPU's cases; the name of one of them occurs earlier in the list
    first = {case.name: case for case in reversed(cases_for(post.plan.device))}
    wanted = [first[name] for name in names if name in first]
    for place, case in enumerate(wanted):
        because = case.absent_because(bench)
        if because:
            tell({"event": "absent", "case": case.name, "because": because})
            continue
        bench.budget_s = share_of_time(case, wanted[place + 1 :], end - time.monotonic())
        for reading in case.run(bench):
            tell({"event": "reading", "values": reading_to_json(reading)})
        for what, because in bench.left_out:
            tell({"event": "absent", "case": what, "because": because})
        bench.left_out.clear()
    _rest(post)


def _rest(post: Post) -> None:
    """Reset the threads and free the allocator's memory: other processes of this node measure next."""
    import torch

    torch.set_num_threads(post.plan.threads)
    if post.device.type == "cuda":
        torch.cuda.empty_cache()


def run_digests(post: Post, order: Order) -> None:
    """Repeat the same products for `seconds`; reports every digest that was seen, and how often."""
    from gpudoc.fleet.digests import cublas_version, digest_products

    for product, seen in digest_products(post.device, order["size"], order["seconds"]):
        tell({"event": "digest", "product": product, "seen": seen})
    if post.device.type == "cuda":
        tell({"event": "library", "cublas": cublas_version()})
    _rest(post)


def run_steps(post: Post, order: Order) -> None:
    """Run the quickstart's training step on one fixed batch; reports samples per second."""
    import torch

    stepper, batch = _make_step(post.device)

    def timed(count: int) -> float:
        if post.device.type == "cuda":
            torch.cuda.synchronize(post.device)
        started = time.perf_counter()
        for _ in range(count):
            stepper.run(batch)
        if post.device.type == "cuda":
            torch.cuda.synchronize(post.device)
        stepper.losses.take()
        return time.perf_counter() - started

    # a busy core needs seconds for one step: then one step is a sample, and fewer steps warm it up
    begun = time.monotonic()
    one_s = timed(1)
    for _ in range(_WARM_STEPS - 1):
        if time.monotonic() - begun < order["seconds"]:
            one_s = timed(1)
    count = _STEPS_PER_SAMPLE if one_s * MIN_SAMPLES < order["seconds"] else 1
    samples: list[float] = []
    end = time.monotonic() + order["seconds"]
    while len(samples) < MIN_SAMPLES or time.monotonic() < end:
        samples.append(count * _STEP_BATCH / timed(count))
        if time.monotonic() > end + order["seconds"]:
            break
    parameters = {"batch": _STEP_BATCH, "dtype": stepper.parts.precision.name}
    tell({"event": "sampled", "name": "train_step", "unit": "samples/s", "parameters": parameters, "samples": samples})


def _make_step(device: torch.device) -> tuple[Any, Any]:
    import torch
    from torch.utils.data import default_collate

    from gpudoc.train.ranks.protocol import Alone
    from gpudoc.train.start.parts import StepForm, build_parts
    from gpudoc.train.step.precision import Precision
    from gpudoc.train.step.step import Micro, Stepper
    from gpudoc.workload.batch import to_device
    from gpudoc.workload.build import Workload
    from gpudoc.workload.config import load_config

    workload = Workload(load_config("quickstart"))
    half = device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)
    form = StepForm(precision=Precision("bf16" if half else "fp32", "the same on every GPU of one model"))
    parts = build_parts(workload, workload.build_model(), form, device, Alone())
    collate = workload.collate or default_collate
    batch = to_device(collate([workload.dataset[index] for index in range(_STEP_BATCH)]), device)
    return Stepper(parts), [Micro(batch, 1.0)]


def run_group(post: Post, order: Order) -> None:
    """Act as one rank of a group that meets in a store: collectives by size, or the clocks after a common barrier."""
    import torch.distributed as dist
    from torch._C._distributed_c10d import PrefixStore, TCPStore

    limit = timedelta(seconds=order["limit_s"])
    if order["one_node"]:
        # the host's name may resolve to an address that nothing listens on
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    # a hang must end this process with an error, not block it
    os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1")
    store = TCPStore(order["address"], order["port"], is_master=False, timeout=limit)
    backend = "gloo" if post.device.type == "cpu" else "nccl"
    dist.init_process_group(
        backend,
        store=PrefixStore(order["id"], store),
        rank=order["rank"],
        world_size=order["world"],
        timeout=limit,
        # otherwise the first barrier would guess the GPU from the rank
        device_id=post.device if post.device.type == "cuda" else None,
    )
    for operation in order["operations"]:
        if operation == "clock":
            tell({"event": "clock", "rows": _look_at_clocks(post.device)})
        else:
            for row in _sweep(operation, post.device, order):
                tell({"event": "swept", **row})
    # the first rank to finish would close the connections of ranks that still read
    dist.barrier()
    dist.destroy_process_group()
    _rest(post)


def _sweep(operation: Operation, device: torch.device, order: Order) -> Iterator[dict[str, object]]:
    """Run each size in turn while all ranks have memory and time for it, which they agree on first."""
    import torch
    import torch.distributed as dist

    world = dist.get_world_size()
    end = time.monotonic() + order["seconds"] / len(order["operations"])
    last_s, last_size = 0.0, 0
    for wanted in order["sizes"]:
        size = whole_size(operation, wanted, world)
        expected_s = last_s * size / last_size if last_size else 0.0
        left = max(0.0, end - time.monotonic())
        # the minimum over all ranks, so that no rank begins a size that another leaves out
        can = [_free_bytes(device) / (_BUFFERS * size), left - (WARM_UP + FEWEST_REPEATS) * expected_s, left]
        agreed = torch.tensor(can, device=device, dtype=torch.float64)
        dist.all_reduce(agreed, op=dist.ReduceOp.MIN)
        memory, time_left, left = agreed.tolist()
        if memory < 1 or (last_size and time_left <= 0):
            because = "too little memory is free for it" if memory < 1 else "no time was left for it"
            yield {"name": operation, "unit": "GB/s", "parameters": {"bytes": size, "ranks": world}, "because": because}
            return
        share = left / max(1, len(order["sizes"])) if expected_s else 0.0
        repeats = int(min(MOST_REPEATS, max(FEWEST_REPEATS, share / expected_s))) if expected_s else FEWEST_REPEATS
        # every rank must do the same number
        count = torch.tensor([repeats], device=device)
        dist.all_reduce(count, op=dist.ReduceOp.MIN)
        try:
            seconds = time_collective(operation, size, device, int(count.item()))
        except RuntimeError as problem:
            if "does not support" not in str(problem) and "not implemented" not in str(problem):
                raise
            because = str(problem)[:200]
            yield {"name": operation, "unit": "GB/s", "parameters": {"bytes": size, "ranks": world}, "because": because}
            return
        last_s, last_size = sorted(seconds)[len(seconds) // 2], size
        samples = [bus_gb_per_s(size, one, world, operation) for one in seconds]
        parameters = {"bytes": size, "ranks": world}
        yield {"name": operation, "unit": "GB/s", "parameters": parameters, "samples": samples}


def _free_bytes(device: torch.device) -> float:
    if device.type == "cuda":
        import torch

        return float(torch.cuda.mem_get_info(device)[0])
    import psutil

    # several ranks share a host's memory
    return float(psutil.virtual_memory().available) / 16


def _look_at_clocks(device: torch.device) -> list[list[float]]:
    """The wall clocks of all ranks, read right after they leave a barrier together: one row per look."""
    import torch
    import torch.distributed as dist

    rows = []
    for _ in range(_CLOCK_LOOKS):
        dist.barrier()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        # a float64 holds the time of day to a quarter of a microsecond
        mine = torch.tensor([time.time()], dtype=torch.float64, device=device)
        every = torch.zeros(dist.get_world_size(), dtype=torch.float64, device=device)
        dist.all_gather_into_tensor(every, mine)
        rows.append([float(one) for one in every.tolist()])
    return rows


DUTIES: Mapping[str, Callable[[Post, Order], None]] = {
    "cases": run_cases,
    "digests": run_digests,
    "steps": run_steps,
    "group": run_group,
}

if __name__ == "__main__":
    main()
