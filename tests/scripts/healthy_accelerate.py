"""Accelerate, compute-bound."""

from accelerate_parts import run
from parts import Pixels, conv
from torch.utils.data import DataLoader

run(DataLoader(Pixels(), batch_size=32), conv(64))
