"""Twelve workers that decode on two CPUs."""

from parts import FIXED, Jpegs, conv, threads, train
from torch.utils.data import DataLoader

threads()
train(conv(), DataLoader(Jpegs(rounds=3), batch_size=16, num_workers=2 if FIXED else 12, persistent_workers=True))
