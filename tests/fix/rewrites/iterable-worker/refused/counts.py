# loader `loader = DataLoader`; workers 4 -> refused: changes `self.position`
import torch
from torch.utils.data import DataLoader, IterableDataset


class Stream(IterableDataset):
    def __init__(self):
        self.position = 0

    def __iter__(self):
        while self.position % 512 < 511:
            self.position += 1
            yield torch.full((8,), float(self.position))
        self.position += 1


loader = DataLoader(Stream(), batch_size=16)
for epoch in range(3):
    for batch in loader:
        batch.sum()
