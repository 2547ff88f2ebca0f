"""Keeps the inputs of every step in a list."""

import numpy as np
from parts import Pixels, conv, threads, train
from torch.utils.data import DataLoader

history = []


def remember(step, model, loss):
    history.append(np.random.rand(60_000))


threads()
train(conv(), DataLoader(Pixels(), batch_size=16), after_step=remember)
