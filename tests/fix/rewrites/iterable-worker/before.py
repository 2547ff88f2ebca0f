# loader `DataLoader(Stream`; workers 4
import torch
from torch.utils.data import DataLoader, IterableDataset


class Stream(IterableDataset):
    def __iter__(self):
        for index in range(512):
            yield torch.full((8,), float(index))


for batch in [
    DataLoader(Stream(), batch_size=16),
][0]:
    batch.sum()
