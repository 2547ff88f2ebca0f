# hot `x = (self.waves` 0.6; loader `for x, y in DataLoader`
import functools
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


def make_waves(count):
    waves = np.empty((count, 4000), dtype=np.float32)
    for i in range(count):
        waves[i] = np.sin(np.arange(4000) * (0.01 + i / count))
    return torch.from_numpy(waves)


class Waves(Dataset):
    def __init__(self, waves):
        self.waves = waves

    def __len__(self):
        return len(self.waves)

    @functools.cache
    def __getitem__(self, i):
        x = (self.waves[i] - self.waves[i].mean()) / self.waves[i].std()
        return x, i % 3


def train():
    waves = make_waves(200)
    model = torch.nn.Linear(4000, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(3):
        for x, y in DataLoader(Waves(waves), batch_size=20):
            loss = torch.nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


train()
