"""A dataset that caches every decoded sample, in each worker for itself."""

from parts import Pixels, conv, threads, train
from torch.utils.data import DataLoader


class Cached(Pixels):
    def __init__(self):
        super().__init__(length=1_000_000)
        self.cache = {}

    def __getitem__(self, index):
        image, label = super().__getitem__(index)
        self.cache[index] = image + 0.0
        return self.cache[index], label


threads()
train(conv(32), DataLoader(Cached(), batch_size=16, num_workers=1))
