# loader `loader = DataLoader`; workers 4
import random

import torch
from torch.utils.data import DataLoader, IterableDataset


def lines(n, seed):
    rng = random.Random(seed)
    for _ in range(n):
        yield [rng.random() for _ in range(8)]


class Stream(IterableDataset):
    def __init__(self, n, seed):
        self.n = n
        self.seed = seed

    def __iter__(self):
        for line in lines(self.n, self.seed):
            yield torch.tensor(line)


loader = DataLoader(Stream(256, seed=3), batch_size=16)
for epoch in range(2):
    for batch in loader:
        batch.sum()
