"""A pause was left in the loop, to be kind to a shared machine."""

import time

from parts import Vectors, mlp, threads, train
from torch.utils.data import DataLoader


def rest(step, model, loss):
    time.sleep(0.05)


threads()
train(mlp(), DataLoader(Vectors(), batch_size=64), after_step=rest)
