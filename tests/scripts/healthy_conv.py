"""A convolution network with one worker that easily keeps up."""

from parts import Pixels, conv, threads, train
from torch.utils.data import DataLoader

threads()
train(conv(64), DataLoader(Pixels(), batch_size=32, num_workers=1, persistent_workers=True))
