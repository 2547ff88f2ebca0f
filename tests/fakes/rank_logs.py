"""Logs of jobs of many ranks in which one planted rank fails first and the others follow, as launchers write them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

PER_NODE = 8
BEGAN = datetime(2026, 11, 25, 9, 0, 0)
STEP_S, LOGGED_EVERY = 2.0, 10


@dataclass(frozen=True)
class Fault:
    """What the first rank prints, its exit code, and the causes that doctor may name."""

    name: str
    causes: tuple[str, ...]
    lines: tuple[str, ...]
    code: int = 1


def traced(*frames: str, error: str) -> tuple[str, ...]:
    """A traceback of these frames below the user's loop."""
    return (
        "Traceback (most recent call last):",
        '  File "/code/run/train.py", line 88, in <module>',
        "    loss = step(batch)",
        *frames,
        error,
    )


SITE = "/opt/venv/lib/python3.11/site-packages/torch/distributed"
OUT_OF_MEMORY = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.00 GiB. GPU 0 has a total capacity of 79.11 GiB "
    "of which 1.20 GiB is free. Including non-PyTorch memory, this process has 77.90 GiB memory in use. Of the "
    "allocated memory 76.10 GiB is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but unallocated."
)
FAULTS = (
    Fault(
        "missing_key",
        ("missing_key",),
        traced(
            '  File "/code/run/data.py", line 31, in collate', '    label = row["label"]', error="KeyError: 'label'"
        ),
    ),
    Fault(
        "gpu_memory",
        ("oom_capacity", "oom_variable_length_batch", "oom_fragmentation"),
        traced(
            '  File "/code/run/model.py", line 52, in forward',
            "    scores = q @ k.transpose(-2, -1)",
            error=OUT_OF_MEMORY,
        ),
    ),
    Fault(
        "ecc",
        ("gpu_ecc_error", "gpu_hardware_fault"),
        traced(error="torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered"),
    ),
    Fault("host_memory", ("host_oom_killed",), (), -9),
    Fault(
        "crash",
        ("rank_crashed",),
        ("Fatal Python error: Segmentation fault", "", '  File "/code/run/ops.py", line 12 in fused'),
        -11,
    ),
    Fault("hang", ("nccl_timeout_one_rank_busy",), (), -15),
    Fault(
        "disk",
        ("disk_full",),
        traced(
            '  File "/code/run/save.py", line 9, in save',
            "    torch.save(state, path)",
            error="OSError: [Errno 28] No space left on device: '/data/checkpoints/step.pt'",
        ),
    ),
    Fault(
        "illegal_access",
        ("illegal_memory_access",),
        traced(error="torch.AcceleratorError: CUDA error: an illegal memory access was encountered"),
    ),
)
# what ranks print when another one is gone, late, or when they are asked to end
CLOSED = traced(
    f'  File "{SITE}/distributed_c10d.py", line 2501, in all_reduce',
    "    work.wait()",
    error="RuntimeError: [/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.{node}.7]:4711",
)
REMOTE = (
    *traced(error="torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:3690, remote process exited"),
    "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
)
EXPIRED = (
    "[E1125 {clock} ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum={seq}, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600029 milliseconds before timing out."
)
WATCHDOG = (
    EXPIRED,
    "[E1125 {clock} ProcessGroupNCCL.cpp:684] [Rank {rank}] Some NCCL operations have failed or timed out.",
    "terminate called after throwing an instance of 'c10::DistBackendError'",
)
ASKED = traced(
    f'  File "{SITE}/elastic/multiprocessing/api.py", line 84, in _terminate_process_handler',
    error="torch.distributed.elastic.multiprocessing.api.SignalException: Process {pid} got signal: 15 (SIGTERM)",
)
AFTER = (
    "Exception ignored in: <function _MultiProcessingDataLoaderIter.__del__ at 0x7f3a>",
    "RuntimeError: CUDA error: unspecified launch failure",
)
# an error that a rank had early and lived on with, below words that name another rank
SURVIVED = (
    "WARNING store: [rank1] said: Connection reset by peer, trying again",
    *traced(error="ValueError: a sample without a picture, left out"),
)


@dataclass
class Planted:
    """A job's files by name, and who failed first of what."""

    fault: Fault
    style: str
    num_ranks: int
    rank: int
    files: dict[str, list[str]] = field(default_factory=dict)

    @property
    def host(self) -> str:
        return host_of(self.rank)

    def write(self, folder: Path) -> Path:
        """Write the files; the folder, or the one file."""
        for name, lines in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return folder if len(self.files) > 1 else folder / next(iter(self.files))


def host_of(rank: int) -> str:
    return f"node{rank // PER_NODE:03d}"


@dataclass(frozen=True)
class Event:
    """One line of a rank at a second of the job."""

    at: float
    rank: int
    text: str
    traced: bool = False


def events(job: Planted, chance: random.Random, steps: int) -> list[Event]:
    """What all ranks write, in the order in which it happened.

    In styles that tell an order, one more rank may have an error of its own two seconds later.
    """
    found: list[Event] = []
    failed_at = steps * STEP_S + 1.0
    others = [rank for rank in range(job.num_ranks) if rank != job.rank]
    for rank in range(job.num_ranks):
        for step in range(LOGGED_EVERY, steps + 1, LOGGED_EVERY):
            found.append(Event(step * STEP_S + chance.random() * 0.004, rank, f"INFO step {step} loss {3 / step:.4f}"))
    early = chance.choice(others)
    found += [Event(LOGGED_EVERY * STEP_S - 3, early, text, True) for text in SURVIVED]
    found += failure(job.rank, job.fault.lines, failed_at)
    later = None
    if job.fault.lines and job.style in ORDERED and chance.random() < 0.5:
        later = chance.choice(others)
        found += failure(later, FAULTS[2 if job.fault is FAULTS[0] else 0].lines, failed_at + 2.0)
    for rank in others:
        if rank != later:
            at = failed_at + 0.2 + chance.random()
            found += [Event(at, rank, text, True) for text in follow(job, rank, chance, at)]
    return sorted(found, key=lambda event: event.at)


def failure(rank: int, lines: tuple[str, ...], at: float) -> list[Event]:
    """A stamped line and what the rank prints of its own error; nothing of a rank that ends without a word."""
    stops = [Event(at, rank, "ERROR this rank stops")] if lines else []
    return [*stops, *(Event(at, rank, text, True) for text in lines)]


def follow(job: Planted, rank: int, chance: random.Random, at: float) -> Iterator[str]:
    """What a rank prints when another one is gone, or late."""
    way = WATCHDOG if job.fault.name == "hang" else chance.choice((CLOSED, REMOTE, ASKED, CLOSED))
    clock = (BEGAN + timedelta(seconds=at + (600 if way is WATCHDOG else 0))).strftime("%H:%M:%S.%f")
    for line in way:
        yield line.format(node=job.rank // PER_NODE, rank=rank, clock=clock, seq=4810, pid=9000 + rank)
    if chance.random() < 0.2:
        yield from AFTER


def summary(job: Planted, chance: random.Random, *, is_right: bool) -> list[str]:
    """torchrun's last words; its first observed failure is another rank where it is not right."""
    codes = {rank: chance.choice((-15, 1)) if job.fault.name != "hang" else -6 for rank in range(job.num_ranks)}
    codes[job.rank] = job.fault.code
    root = job.rank if is_right else next(rank for rank in range(job.num_ranks) if rank != job.rank)
    codes[root] = codes[root] if codes[root] != -15 or is_right else 1
    shown = [rank for rank in range(job.num_ranks) if rank != root][: PER_NODE * 2]
    local = f"local_rank: {root % PER_NODE} (pid: {9000 + root})"
    lines = [
        f"E1125 10:00:00.123000 812 api.py:869] failed (exitcode: {codes[root]}) {local} of binary: python",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        "=" * 60, "train.py FAILED", "-" * 60, "Failures:",
    ]  # fmt: skip
    for place, rank in enumerate([*shown, root]):
        if rank == root:
            lines += ["-" * 60, "Root Cause (first observed failure):"]
        lines += [
            f"[{place}]:",
            "  time      : 2026-11-25_10:00:00",
            f"  host      : {host_of(rank)}",
            f"  rank      : {rank} (local_rank: {rank % PER_NODE})",
            f"  exitcode  : {codes[rank]} (pid: {9000 + rank})",
            "  error_file: <N/A>",
            "  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html",
        ]
    return [*lines, "=" * 60]


def stamped(event: Event, shift: float = 0.0) -> str:
    return (BEGAN + timedelta(seconds=event.at + shift)).strftime("%Y-%m-%d %H:%M:%S,%f")[:-3]


def system(job: Planted) -> list[str]:
    """What Slurm says of a rank that the kernel killed or that crashed."""
    if job.fault.code == -9:
        return [f"slurmstepd: error: Detected 1 oom_kill event in StepId=4711.0 on {job.host}.",
                f"srun: error: {job.host}: task {job.rank}: Out Of Memory"]  # fmt: skip
    if job.fault.code == -11:
        return [f"srun: error: {job.host}: task {job.rank}: Segmentation fault (core dumped)"]
    return []


def tee(job: Planted, found: list[Event], chance: random.Random) -> None:
    """torchrun --tee of one node or several into one file, with a right summary."""
    lines = [
        f"[default{e.rank % PER_NODE}]:[rank{e.rank}]: {e.text}" if e.traced
        else f"[default{e.rank % PER_NODE}]:[rank{e.rank}]:{stamped(e)} {e.text}"
        for e in found
    ]  # fmt: skip
    job.files["job.log"] = [*lines, *summary(job, chance, is_right=True)]


def labelled(job: Planted, found: list[Event], chance: random.Random) -> None:
    """srun --label, with times, the lines of ranks mixed, and srun's words at the end."""
    lines = [f"{e.rank}: {'' if e.traced else stamped(e) + ' '}{e.text}" for e in mixed(found, chance)]
    ended = f"srun: error: {host_of(0)}: tasks 0-{job.num_ranks - 1}: Exited with exit code 1"
    job.files["slurm-4711.out"] = [*lines, *(system(job) or [ended])]


def apart(job: Planted, found: list[Event], chance: random.Random) -> None:
    """One file for each rank, with clocks of nodes that differ by minutes, and no launcher."""
    shifts = [chance.uniform(-300, 300) for _ in range(job.num_ranks // PER_NODE + 1)]
    for rank in range(job.num_ranks):
        job.files[f"{host_of(rank)}/rank_{rank}.log"] = ["starts"]
    for e in found:
        name = f"{host_of(e.rank)}/rank_{e.rank}.log"
        job.files[name].append(f"{stamped(e, shifts[e.rank // PER_NODE])} {e.text}" if not e.traced else e.text)
    if system(job):
        job.files["srun.log"] = system(job)


def folders(job: Planted, found: list[Event], chance: random.Random) -> None:
    """torchrun --log-dir on each node, without times; the agents' own log has a wrong summary."""
    for rank in range(job.num_ranks):
        for stream in ("stdout", "stderr"):
            job.files[f"{host_of(rank)}/run_x1/attempt_0/{rank % PER_NODE}/{stream}.log"] = []
    for e in found:
        stream = "stderr" if e.traced else "stdout"
        said = f"[rank{e.rank}]: {e.text}" if e.traced else e.text
        job.files[f"{host_of(e.rank)}/run_x1/attempt_0/{e.rank % PER_NODE}/{stream}.log"].append(said)
    job.files["agent.log"] = [*system(job), *summary(job, chance, is_right=False)]


def plain(job: Planted, found: list[Event], chance: random.Random) -> None:
    """torchrun without prefixes but those of tracebacks, cut at both ends, with a wrong summary."""
    lines = [f"[rank{e.rank}]: {e.text}" if e.traced else f"{stamped(e)} {e.text}" for e in found]
    lines = [*lines, *system(job), *summary(job, chance, is_right=False)]
    job.files["train.log"] = [lines[0][7:], *lines[1:-4]]


def late(job: Planted, found: list[Event], chance: random.Random) -> None:
    """Lightning's prefix; the buffers of the first rank were written last, so that it stands at the end."""
    first = [e for e in found if e.rank == job.rank and e.traced]
    others = [e for e in found if e not in first]
    lines = [
        f"[rank: {e.rank}] {'' if e.traced else stamped(e) + ' '}{e.text}" for e in (*mixed(others, chance), *first)
    ]
    ended = f"[rank: {job.rank}] Child process with PID 812 terminated with code {job.fault.code}."
    job.files["lightning.log"] = [*lines, *([ended] if job.fault.code in (-9, -11) else [])]


def mixed(found: list[Event], chance: random.Random) -> list[Event]:
    """The lines of different ranks in any order within half a second, those of one rank in theirs."""
    delays = {e.rank: chance.random() * 0.5 for e in found}
    return sorted(found, key=lambda e: e.at + delays[e.rank])


Style = Callable[[Planted, list[Event], random.Random], None]
STYLES: tuple[Style, ...] = (tee, labelled, apart, folders, plain, late)
# the styles whose lines or times tell which of two errors came first
ORDERED = ("tee", "labelled", "apart", "plain")
SIZES = (2, 8, 64, 256, 1024)


def plant(fault: Fault, style: Style, num_ranks: int, seed: int = 0, steps: int = 60) -> Planted:
    """The logs of one job; the same seed makes the same."""
    chance = random.Random(f"{fault.name} {style.__name__} {num_ranks} {seed}")
    job = Planted(fault, style.__name__, num_ranks, chance.randrange(num_ranks))
    style(job, events(job, chance, steps), chance)
    return job
