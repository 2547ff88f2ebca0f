"""Measures the time to pass a batch from a loader worker to the main process, under this machine's present load.

torch passes each tensor as a file descriptor through Python's own multiprocessing, so this module does the same without
torch. `measure` runs it as a program; nothing imports it for its work.
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
# the first batches are not counted, because they include the start of the other process
FIRST = 5
# inputs and targets
TENSORS = 2
# a worker that holds Python's lock for this time answers late
MAKING_S = 0.002
DEADLINE_S = 10.0
_CALL = "from gpudoc.facts.live.handoff import main; main()"


def measure() -> Fact[Handoff]:
    """The mean of forty batches of two tensors each way; absent if the exchange failed."""
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
    # the worker would leave the folder of its socket behind if a signal ended it
    taken.set()
    worker.join(DEADLINE_S)
    # the mean, because a few batches that wait for a CPU or the lock hold up the loop as they do in training
    return max(0.0, sum(times[FIRST:]) / len(times[FIRST:]) - (MAKING_S if holds else 0.0)), queued_s


def _queued_s(pid: str) -> float:
    """Seconds in which a process's main thread was ready but no CPU was free; 0 if the kernel does not count them."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


def _produce(queue: Queue[list[object]], holds: bool, parent: int, taken: Event) -> None:
    # the measuring process is killed at its deadline, and then nothing takes the batches from the queue
    die_with_parent(parent)
    with tempfile.TemporaryFile() as file:
        for _ in range(BATCHES):
            until = time.thread_time() + (MAKING_S if holds else 0.0)
            while time.thread_time() < until:
                pass
            queue.put([reduction.DupFd(file.fileno()) for _ in range(TENSORS)])
        # the descriptors are served by a thread of this process until all are taken
        taken.wait(DEADLINE_S)
