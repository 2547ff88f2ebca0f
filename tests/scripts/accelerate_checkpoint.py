"""Accelerate that saves its whole state every third step."""

import tempfile

from accelerate_parts import run
from parts import Vectors, mlp
from torch.utils.data import DataLoader

folder = tempfile.mkdtemp()


def save(step, accelerator, loss):
    if step % 3 == 0:
        accelerator.save_state(folder)


run(DataLoader(Vectors(), batch_size=16), mlp(hidden=1024), save)
