"""All CPUs used by the step itself, and a light worker beside it."""

from parts import Pixels, conv, threads, train
from torch.utils.data import DataLoader

threads(2)
train(conv(64), DataLoader(Pixels(), batch_size=64, num_workers=1, persistent_workers=True))
