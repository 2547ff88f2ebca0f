"""JPEG decoding in the main process."""

from parts import FIXED, Jpegs, conv, threads, train
from torch.utils.data import DataLoader

threads()
train(conv(), DataLoader(Jpegs(), batch_size=16, num_workers=1 if FIXED else 0, persistent_workers=FIXED))
