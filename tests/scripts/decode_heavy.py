"""As many workers as CPUs, all busy decoding large images."""

from parts import Jpegs, conv, threads, train
from torch.utils.data import DataLoader

threads()
train(conv(), DataLoader(Jpegs(side=768, rounds=1), batch_size=16, num_workers=2, persistent_workers=True))
