"""Sixteen threads per process on two CPUs."""

from parts import Pixels, conv, threads, train
from torch.utils.data import DataLoader

threads(16)
train(conv(32), DataLoader(Pixels(), batch_size=32, num_workers=1, persistent_workers=True))
