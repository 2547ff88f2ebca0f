"""A DataLoader with a worker: prints the sum of its batch, the temporary folder and that of the sockets.

With `orphan` the parent ends while the worker starts, and the worker's pid is printed.
"""

import multiprocessing.util
import os
import sys
import tempfile

import torch
from torch.utils.data import DataLoader

from gpudoc.process.loader_workers import shorten_socket_paths, start_worker


def start_late(number):
    """The parent ends before the worker looks who it is."""
    print(os.getpid(), flush=True)
    parent = os.getppid()
    os.kill(parent, 9)
    while os.getppid() == parent:
        pass
    if sys.argv[2] == "start_worker":
        start_worker(number)


def main():
    if sys.argv[1] == "short":
        shorten_socket_paths()
    start = start_late if sys.argv[1] == "orphan" else start_worker
    loader = DataLoader(torch.ones(6), batch_size=6, num_workers=1, timeout=5, worker_init_fn=start)
    for batch in loader:
        print(float(batch.sum()))
    print(tempfile.gettempdir())
    print(multiprocessing.util.get_temp_dir())


if __name__ == "__main__":
    main()
