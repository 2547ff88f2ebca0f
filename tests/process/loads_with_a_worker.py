"""A DataLoader with a worker: prints the sum of its batch, the temporary folder and that of the sockets.

With `orphan` the parent ends while the worker starts, and the worker's pid is printed. With `stacks`: the stack size
of threads here and in two workers, and the MiB that this process grew by when they were started.
"""

import multiprocessing.util
import os
import sys
import tempfile
import threading

import torch
from torch.utils.data import DataLoader

from gpudoc.process.loader_workers import shorten_socket_paths, start_worker, start_workers
from gpudoc.process.memory import read_process_memory


def start_late(number):
    """The parent ends before the worker looks who it is."""
    print(os.getpid(), flush=True)
    parent = os.getppid()
    os.kill(parent, 9)
    while os.getppid() == parent:
        pass
    if sys.argv[2] == "start_worker":
        start_worker(number)


class StackSizes(torch.utils.data.Dataset):
    """What a thread gets that is started where samples are read."""

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return threading.stack_size()


def tell_stacks():
    before = read_process_memory().data_bytes
    loader = DataLoader(StackSizes(), batch_size=None, num_workers=2, timeout=60, worker_init_fn=start_worker)
    batches = start_workers(loader, pins=False)
    grown = read_process_memory().data_bytes - before
    print(threading.stack_size(), max(batches), grown >> 20)


def main():
    if sys.argv[1] == "stacks":
        tell_stacks()
        return
    if sys.argv[1] == "short":
        shorten_socket_paths()
    start = start_late if sys.argv[1] == "orphan" else start_worker
    # nobody need wait long for what will not come
    timeout = 2 if sys.argv[1] == "as it is" else 5
    loader = DataLoader(torch.ones(6), batch_size=6, num_workers=1, timeout=timeout, worker_init_fn=start)
    for batch in loader:
        print(float(batch.sum()))
    print(tempfile.gettempdir())
    print(multiprocessing.util.get_temp_dir())


if __name__ == "__main__":
    main()
