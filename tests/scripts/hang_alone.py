"""Waits for a lock that it holds already."""

import threading

from parts import Vectors, mlp, threads, train
from torch.utils.data import DataLoader

lock = threading.Lock()


def count(step, model, loss):
    if step > 20:
        lock.acquire()


threads()
train(mlp(), DataLoader(Vectors(), batch_size=64), after_step=count)
