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
    return (
        Handoff(float(words[0]), float(words[1])) if len(words) == 2 else Absent("the test of passing batches failed")
    )


def main() -> None:
    """Print the two means in seconds."""
    sys.stdout.write(" ".join(f"{_exchange(holds):.6f}" for holds in (False, True)) + "\n")


def _exchange(holds: bool) -> float:
    context = multiprocessing.get_context("fork")
    # a loader worker has two batches ready
    queue: Queue[list[object]] = context.Queue(2)
    taken = context.Event()
    worker = context.Process(target=_produce, args=(queue, holds, os.getpid(), taken), daemon=True)
    worker.start()
    times = []
    for _ in range(BATCHES):
        began = time.perf_counter()
        for tensor in queue.get(timeout=DEADLINE_S):
            os.close(tensor.detach())  # type: ignore[attr-defined]
        times.append(time.perf_counter() - began)
    # ended by a signal, it would leave the folder of its socket behind
    taken.set()
    worker.join(DEADLINE_S)
    # the mean, because a few batches that wait for a CPU or the lock hold up the loop as they do in training
    return max(0.0, sum(times[FIRST:]) / len(times[FIRST:]) - (MAKING_S if holds else 0.0))


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
