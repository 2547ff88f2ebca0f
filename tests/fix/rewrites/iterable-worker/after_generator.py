# loader `loader = DataLoader`; workers 4
import torch
from torch.utils.data import DataLoader, IterableDataset


def lines(n, seed):
    g = torch.Generator()
    g.manual_seed(seed)
    for _ in range(n):
        yield torch.rand(8, generator=g).tolist()


class Stream(IterableDataset):
    def __init__(self, n, seed):
        self.n = n
        self.seed = seed

    def __iter__(self):
        for line in lines(self.n, self.seed):
            yield torch.tensor(line)


loader = DataLoader(Stream(256, seed=3), batch_size=16, num_workers=1)
for epoch in range(2):
    for batch in loader:
        batch.sum()
