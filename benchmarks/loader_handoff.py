"""What it costs to pass a batch from a loader worker to the main process, beside making it.

    python benchmarks/loader_handoff.py [--batches 300] [--record FILE]

A data set makes each batch in a known CPU time, holding Python's lock or not, and the main process works for the same
time per batch. The time per batch with one worker above the longer of the two is what handing over costs. Of stretches
of ten batches the fast ones count, because other jobs only slow them; medians over rounds that take turns. `gpudoc
doctor --pid` puts such figures into the estimate of what workers would gain. It needs a quiet machine.
"""

import argparse
import datetime
import pathlib
import statistics
import time

import torch
from in_parts import commit, machine
from torch.utils.data import DataLoader, Dataset


class Made(Dataset):
    """One whole batch per item: `tensors` tensors of `size` numbers, made in `busy_s`."""

    def __init__(self, length, busy_s, held, tensors, size):
        self.length, self.busy_s, self.held, self.tensors, self.size = length, busy_s, held, tensors, size

    def __len__(self):
        return self.length

    def __getitem__(self, _):
        work(self.busy_s, self.held)
        return [torch.ones(self.size) for _ in range(self.tensors)]


def work(seconds, held):
    """So much CPU time, whatever else the machine does."""
    until = time.thread_time() + seconds
    if held:
        while time.thread_time() < until:
            pass
        return
    matrix = torch.ones(160, 160)
    while time.thread_time() < until:
        matrix @ matrix


def per_batch(options, num_workers, busy_s, held, tensors, size):
    torch.set_num_threads(1)
    data = Made(options.batches, busy_s, held, tensors, size)
    loader = DataLoader(data, batch_size=None, num_workers=num_workers)
    times = []
    last = time.perf_counter()
    for _ in loader:
        work(busy_s, False)
        now = time.perf_counter()
        times.append(now - last)
        last = now
    # other jobs only ever make a stretch of batches longer; single batches differ because some were ready before
    blocks = [statistics.mean(times[i : i + BLOCK]) for i in range(BLOCK, len(times) - BLOCK, BLOCK)]
    return sorted(blocks)[len(blocks) // 10]


BLOCK = 10
# milliseconds to make a batch, its tensors, numbers in each
BATCHES = ((1, 2, 1000), (5, 2, 1000), (20, 2, 1000), (5, 1, 1000), (5, 8, 1000), (5, 2, 1_000_000))
CASES = [(held, *batch) for held in (False, True) for batch in BATCHES]
QUICK = [(held, 5, 2, 1000) for held in (False, True)]
HEADING = (
    "| making holds Python's lock | making, ms | tensors | bytes | handing over, ms | all rounds |",
    "|" + "---|" * 6,
)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--batches", type=int, default=300)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--quick", action="store_true", help="only two tensors made in 5 ms")
    options.add_argument("--record", type=pathlib.Path)
    options = options.parse_args()
    about = f"{machine()}; commit {commit()}"
    lines = list(HEADING)
    print("\n".join(lines), flush=True)
    for held, busy_ms, tensors, size in QUICK if options.quick else CASES:
        found = []
        for _ in range(options.rounds):
            alone = per_batch(options, 0, busy_ms / 1e3, held, tensors, size)
            shared = per_batch(options, 1, busy_ms / 1e3, held, tensors, size)
            # without a worker both works follow each other, with one they are side by side
            found.append(1e3 * shared - 1e3 * alone / 2)
        every = ", ".join(f"{f:.2f}" for f in found)
        row = ("yes" if held else "no", busy_ms, tensors, 4 * size * tensors, f"{statistics.median(found):.2f}", every)
        lines.append("| " + " | ".join(map(str, row)) + " |")
        print(lines[-1], flush=True)
    if options.record:
        date = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
        command = f"python benchmarks/loader_handoff.py --batches {options.batches} --rounds {options.rounds}"
        head = ["# What passing a batch from a worker costs", "", f"{date}; {about}.", f"Command: `{command}`.", ""]
        options.record.write_text("\n".join([*head, *lines]) + "\n")


if __name__ == "__main__":
    main()
