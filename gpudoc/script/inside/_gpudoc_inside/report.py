"""The reports of a process that trains: lines of JSON in a file, signs of life in memory, its peak memory.

The signs of life have the layout of gpudoc's train/ranks/pulse.py, which cannot be imported here. After its own fault
the hook says so and steps aside.
"""

from __future__ import annotations

import json
import mmap
import os
import sys
import time
from contextlib import contextmanager, suppress
from typing import Any, Callable, Iterator

_RANKS = (("RANK", "LOCAL_RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"))
_VERSION, _NUM_WORDS = 1, 16
_IS, _PID, _RANK, _WORLD, _STEP, _DOING, _BEATS = range(7)
_BUILDING, _READING, _EVALUATING, _ENDED, _OWN_CODE = 0, 1, 4, 6, 7


class HookReport:
    """The order, and the file of this process; `off` once the hook has stepped aside."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        with open(os.path.join(folder, "order.json"), encoding="utf-8") as file:
            self.order: dict[str, Any] = json.load(file)
        self.off = False
        self.began = time.perf_counter()
        self.undo: list[Callable[[], None]] = []
        self._torch: Any = None
        self.process = os.getpid()
        self._started = False

    def torch_is_here(self, torch: Any) -> None:
        """Torch has been imported, so this process may train. A child process only reports once it trains."""
        self._torch = torch
        if not _is_child():
            self.start()

    def after_fork(self) -> None:
        """Let a forked child report for itself, once it has something to report."""
        self.process = os.getpid()
        self._started = False
        self.began = time.perf_counter()

    @property
    def started(self) -> bool:
        """Whether this process has reported anything yet."""
        return self._started

    @property
    def is_run(self) -> bool:
        """Whether the script runs to its end: then steps are summed, not listed."""
        return bool(self.order["purpose"] == "run")

    def start(self) -> None:
        """Report which process this is, once."""
        if self._started:
            return
        self._started = True
        rank, local_rank, world = launched_ranks()
        torch = self._torch if self._torch is not None else sys.modules.get("torch")
        self._write(
            "start",
            {
                "pid": self.process,
                "ppid": os.getppid(),
                "rank": rank,
                "local_rank": local_rank,
                "world": world,
                "program": os.path.basename((getattr(sys, "argv", None) or [""])[0]),
                "python": ".".join(map(str, sys.version_info[:3])),
                "torch": str(getattr(torch, "__version__", "")),
                "cuda": getattr(getattr(torch, "version", None), "cuda", None),
            },
        )

    def tell(self, kind: str, **event: Any) -> None:
        """Write one line, after the line of `start`."""
        self.start()
        self._write(kind, event)

    @contextmanager
    def guard(self, what: str) -> Iterator[None]:
        """Treat an exception in this block as the hook's own fault: it steps aside, and the script goes on."""
        try:
            yield
        except Exception as problem:
            self.step_aside(what, problem)

    def step_aside(self, what: str, problem: BaseException) -> None:
        """Undo all changes of the hook and report why; nothing is reported afterwards."""
        if self.off:
            return
        self.off = True
        for undo in reversed(self.undo):
            # a wrapper that cannot be removed does nothing any more
            with suppress(Exception):
                undo()
        # if even this cannot be written, no one reads it
        with suppress(Exception):
            self.tell("aside", why=f"{what}: {type(problem).__name__}: {str(problem)[:500]}")

    def _write(self, kind: str, event: dict[str, Any]) -> None:
        line = json.dumps({"kind": kind, "at": time.time(), **event}) + "\n"
        path = os.path.join(self.folder, f"{launched_ranks()[0] or 0}-{self.process}.jsonl")
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
        try:
            data, before = line.encode("utf-8", "replace"), os.fstat(handle).st_size
            if os.write(handle, data) < len(data):
                # the disk is full, and half a line would be read as a fault
                os.ftruncate(handle, before)
                raise OSError("no room for a complete line")
        finally:
            os.close(handle)


def is_worker() -> bool:
    """Whether this process loads data for another one."""
    worker = sys.modules.get("torch.utils.data._utils.worker")
    return worker is not None and worker.get_worker_info() is not None


def _is_child() -> bool:
    process = sys.modules.get("multiprocessing.process")
    if process is None:
        return False
    return process.parent_process() is not None or bool(getattr(process.current_process(), "_inheriting", False))


def launched_ranks() -> list[int | None]:
    """Rank, local rank and world size from a launcher's variables; None for each that they do not set."""
    for names in _RANKS:
        found = [os.environ.get(name, "") for name in names]
        if found[0].isdecimal():
            return [int(value) if value.isdecimal() else None for value in found]
    return [None, None, None]


class RankPulse:
    """The signs of life of a process that trains, stored as numbers in memory. Only in a run, not in trials."""

    def __init__(self, report: HookReport) -> None:
        self._report = report
        self._words: Any = None
        self._is_over = not report.is_run
        if not self._is_over:
            # the memory that a fork inherits belongs to its parent
            os.register_at_fork(after_in_child=self._forget)
        # the hook gives no signs after it stepped aside, which must not look like a hang
        report.undo.append(self.ends)

    def _forget(self) -> None:
        self._words = None

    def builds(self) -> None:
        """Torch has been imported: a rank of a launcher will train, and other ranks may wait for it."""
        # a scheduler also sets a rank for torchrun itself, which does not train
        if "RANK" in os.environ and "LOCAL_RANK" in os.environ and self._report.started:
            self._now(_BUILDING)

    def asks(self, grad: bool) -> None:
        """The script asks for a batch, to train with or to evaluate."""
        self._now(_READING if grad else _EVALUATING)

    def goes_on(self) -> None:
        """The script has its batch, and runs its own code now."""
        self._now(_OWN_CODE)

    def steps(self, count: int) -> None:
        """The script has made `count` optimizer steps."""
        words = self._words or self._opened()
        if words is not None:
            words[_STEP] = count
            words[_BEATS] += 1

    def ends(self) -> None:
        """The process ends by itself, or nothing more will be reported of it."""
        self._is_over = True
        if self._words is not None:
            self._words[_DOING] = _ENDED
            self._words = None

    def _now(self, doing: int) -> None:
        try:
            words = self._words or self._opened()
            if words is not None:
                words[_DOING] = doing
                words[_BEATS] += 1
        except Exception as problem:
            self._report.step_aside("a sign of life", problem)

    def _opened(self) -> Any:
        """Memory in this process's own file; None in trials, and for a loader worker of another process."""
        if self._is_over or is_worker():
            return None
        launched = launched_ranks()
        rank, world = ranks_of_torch() or (launched[0] or 0, launched[2] or 1)
        try:
            with open(os.path.join(self._report.folder, f"rank-{rank}-{self._report.process}"), "w+b") as file:
                # zeros are written instead of a truncate: a store into a page without room on the disk causes SIGBUS
                file.write(bytes(_NUM_WORDS * 8))
                file.flush()
                words = memoryview(mmap.mmap(file.fileno(), _NUM_WORDS * 8)).cast("q")
        except (OSError, ValueError):
            # there are no signs of life then, which must not disturb the script
            self._is_over = True
            return None
        words[_IS], words[_RANK], words[_WORLD] = _VERSION, rank, world
        # the process id comes last, since a reader takes the rest as valid once it is set
        words[_PID] = self._report.process
        self._words = words
        return words


def ranks_of_torch() -> tuple[int, int] | None:
    """(rank, world size) from torch.distributed once a group was made; None before that, or without it."""
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed.get_rank(), distributed.get_world_size()


def cuda() -> Any:
    """torch.cuda if the script has started it, else None."""
    torch: Any = sys.modules.get("torch")
    found = getattr(torch, "cuda", None)
    return found if found is not None and found.is_initialized() else None


def peaks() -> dict[str, int | None]:
    """Peak bytes: reserved and allocated on the current GPU, else private memory as RLIMIT_DATA counts it."""
    device = cuda()
    if device is not None:
        return {
            "peak_bytes": int(device.max_memory_reserved()),
            "peak_allocated_bytes": int(device.max_memory_allocated()),
            "device_bytes": int(device.memory_reserved() + device.mem_get_info()[0]),
        }
    return {"peak_bytes": _private_peak_bytes(), "peak_allocated_bytes": None, "device_bytes": None}


def allocator_numbers() -> dict[str, int]:
    """The current numbers of the CUDA allocator and the card, in bytes; empty if CUDA was not started."""
    device = cuda()
    if device is None:
        return {}
    statistics = device.memory_stats()
    names = {
        "allocated": "allocated_bytes.all.current",
        "peak_allocated": "allocated_bytes.all.peak",
        "reserved": "reserved_bytes.all.current",
        "peak_reserved": "reserved_bytes.all.peak",
        "inactive_split": "inactive_split_bytes.all.current",
    }
    told = {name: int(statistics[key]) for name, key in names.items() if key in statistics}
    free, total = device.mem_get_info()
    return {**told, "retries": int(statistics.get("num_alloc_retries", 0)), "free": int(free), "total": int(total)}


def _private_peak_bytes() -> int | None:
    # the same arithmetic as gpudoc's process/memory.py, which cannot be imported here
    sizes = {}
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            for line in file:
                name, _, rest = line.partition(":")
                if name in ("VmPeak", "VmSize", "VmData"):
                    sizes[name] = int(rest.split()[0]) * 1024
    except OSError:
        return None
    if len(sizes) < 3:
        return None
    return sizes["VmPeak"] - (sizes["VmSize"] - sizes["VmData"])


def limit_device(report: HookReport, torch: Any) -> None:
    """Limit torch to the ordered share of its GPU, once the script has started CUDA by itself."""
    limit, index = report.order.get("device_limit_bytes"), report.order.get("device_index")
    if limit is None:
        return
    local_rank = launched_ranks()[1]
    device = int(local_rank or 0) if index is None else int(index)

    def started() -> None:
        with report.guard("the memory limit of the GPU"):
            total = torch.cuda.get_device_properties(device).total_memory
            torch.cuda.set_per_process_memory_fraction(min(1.0, limit / total), device)

    # torch does the same with a seed that is set before CUDA has started
    torch.cuda._lazy_call(started)
