"""A large list of Python objects in the data set: each row that a worker reads is copied into its own memory."""

import random

from parts import Pixels, conv, threads, train
from torch.utils.data import DataLoader

ROWS = 3_000_000


class Captioned(Pixels):
    """Each sample is described by some captions drawn from all of them."""

    def __init__(self):
        super().__init__(length=1_000_000)
        self.captions = [(f"a picture of thing {n}", n) for n in range(ROWS)]

    def __getitem__(self, index):
        image, label = super().__getitem__(index)
        drawn = [self.captions[random.randrange(ROWS)] for _ in range(4)]
        return image, (label + sum(number for _, number in drawn)) % 10


threads()
train(conv(32), DataLoader(Captioned(), batch_size=16, num_workers=2))
