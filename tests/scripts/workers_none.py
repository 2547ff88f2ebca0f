"""JPEG decoding in the main process."""

from parts import ADVISED, FIXED, Jpegs, conv, threads, train
from torch.utils.data import DataLoader

threads()
train(conv(), DataLoader(Jpegs(), batch_size=16, num_workers=ADVISED if FIXED else 0, persistent_workers=FIXED))
