"""Saves the model after every step."""

import pathlib
import tempfile

import torch
from parts import Vectors, mlp, threads, train
from torch.utils.data import DataLoader

place = pathlib.Path(tempfile.mkdtemp(), "last.pt")


def save(step, model, loss):
    torch.save({"model": model.state_dict(), "step": step}, place)


threads()
model = mlp(hidden=1536)
train(model, DataLoader(Vectors(), batch_size=16), torch.optim.SGD(model.parameters(), 0.01), after_step=save)
