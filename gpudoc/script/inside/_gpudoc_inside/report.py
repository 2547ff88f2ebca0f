"""The report: one file for each process that trains, one JSON object per line; and stepping aside after a fault."""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import contextmanager, suppress
from typing import Any, Callable, Iterator

_RANKS = (("RANK", "LOCAL_RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"))


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
        """Torch has been imported: this process is one that may train. A child says so when it does train."""
        self._torch = torch
        if not _is_child():
            self.start()

    def after_fork(self) -> None:
        """A forked child tells for itself, and nothing before it has something to tell."""
        self.process = os.getpid()
        self._started = False
        self.began = time.perf_counter()

    @property
    def started(self) -> bool:
        """Whether this process has reported anything yet."""
        return self._started

    @property
    def is_run(self) -> bool:
        """Whether the script is run to its end, so that steps are summed and not listed."""
        return bool(self.order["purpose"] == "run")

    def start(self) -> None:
        """Say who this process is, once."""
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
        """One line, after who this is."""
        self.start()
        self._write(kind, event)

    @contextmanager
    def guard(self, what: str) -> Iterator[None]:
        """A fault in here is the hook's own: it steps aside, and the script goes on."""
        try:
            yield
        except Exception as problem:
            self.step_aside(what, problem)

    def step_aside(self, what: str, problem: BaseException) -> None:
        """Take back what was touched and say why; nothing is reported after it."""
        if self.off:
            return
        self.off = True
        for undo in reversed(self.undo):
            # what cannot be taken back does nothing any more
            with suppress(Exception):
                undo()
        # where not even this can be said, nobody is listening
        with suppress(Exception):
            self.tell("aside", why=f"{what}: {type(problem).__name__}: {str(problem)[:500]}")

    def _write(self, kind: str, event: dict[str, Any]) -> None:
        line = json.dumps({"kind": kind, "at": time.time(), **event}) + "\n"
        path = os.path.join(self.folder, f"{launched_ranks()[0] or 0}-{self.process}.jsonl")
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
        try:
            data, before = line.encode("utf-8", "replace"), os.fstat(handle).st_size
            if os.write(handle, data) < len(data):
                # on a full disk; half a line would be taken for a fault
                os.ftruncate(handle, before)
                raise OSError("no room for all of a line")
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
    """Rank, local rank and ranks in all, as a launcher's variables tell; None for what they do not."""
    for names in _RANKS:
        found = [os.environ.get(name, "") for name in names]
        if found[0].isdecimal():
            return [int(value) if value.isdecimal() else None for value in found]
    return [None, None, None]
