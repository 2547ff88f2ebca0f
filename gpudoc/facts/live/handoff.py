"""What it costs on this machine, as busy as it is, to pass a batch from a loader worker to the main process.

torch passes each tensor as a file descriptor through Python's own multiprocessing, so the same is done here without
torch: run as a program by `measure`, never imported for its work.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from multiprocessing import reduction
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event
from pathlib import Path

from gpudoc.facts.model import Absent, Fact
from gpudoc.facts.process import Handoff
from gpudoc.process.arguments import own_python
from gpudoc.process.lifetime import die_with_parent

BATCHES = 45
# starting the other process is no part of it
FIRST = 5
# inputs and targets
TENSORS = 2
# a worker that holds Python's lock meanwhile answers late
MAKING_S = 0.002
DEADLINE_S = 10.0
_CALL = "from gpudoc.facts.live.handoff import main; main()"


def measure() -> Fact[Handoff]:
    """The mean of forty batches of two tensors each way; absent when the exchange did not work here."""
    try:
        done = subprocess.run(
            own_python(_CALL), capture_output=True, text=True, timeout=DEADLINE_S, start_new_session=True, check=False
        )
    except subprocess.TimeoutExpired:
        return Absent("measuring how long a batch takes to pass took too long")
    words = done.stdout.split()
    return Handoff(*map(float, words)) if len(words) == 3 else Absent("the test of passing batches failed")


def main() -> None:
    """Print the two means in seconds, and the share of the time in which one of the processes waited for a CPU."""
    began = time.monotonic()
    exchanges = [_exchange(holds) for holds in (False, True)]
    queued_s = sum(queued_s for _, queued_s in exchanges)
    figures = (*(mean_s for mean_s, _ in exchanges), queued_s / (time.monotonic() - began))
    sys.stdout.write(" ".join(f"{figure:.6f}" for figure in figures) + "\n")


def _exchange(holds: bool) -> tuple[float, float]:
    """The mean time of a batch, and the time that both main threads waited for a CPU, in seconds."""
    context = multiprocessing.get_context("fork")
    # a loader worker has two batches ready
    queue: Queue[list[object]] = context.Queue(2)
    taken = context.Event()
    worker = context.Process(target=_produce, args=(queue, holds, os.getpid(), taken), daemon=True)
    worker.start()
    before_s = _queued_s("self")
    times = []
    for _ in range(BATCHES):
        began = time.perf_counter()
        for tensor in queue.get(timeout=DEADLINE_S):
            os.close(tensor.detach())  # type: ignore[attr-defined]
        times.append(time.perf_counter() - began)
    queued_s = _queued_s("self") - before_s + _queued_s(str(worker.pid))
    # ended by a signal, it would leave the folder of its socket behind
    taken.set()
    worker.join(DEADLINE_S)
    # the mean, because a few batches that wait for a CPU or the lock hold up the loop as they do in training
    return max(0.0, sum(times[FIRST:]) / len(times[FIRST:]) - (MAKING_S if holds else 0.0)), queued_s


def _queued_s(pid: str) -> float:
    """How long the main thread of a process has been ready while no CPU was free; 0 where the kernel does not count."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


def _produce(queue: Queue[list[object]], holds: bool, parent: int, taken: Event) -> None:
    # who measures is killed at its deadline, and nobody takes what is in the queue then
    die_with_parent(parent)
    with tempfile.TemporaryFile() as file:
        for _ in range(BATCHES):
            until = time.thread_time() + (MAKING_S if holds else 0.0)
            while time.thread_time() < until:
                pass
            queue.put([reduction.DupFd(file.fileno()) for _ in range(TENSORS)])
        # the descriptors are served by a thread of this process until all are taken
        taken.wait(DEADLINE_S)
