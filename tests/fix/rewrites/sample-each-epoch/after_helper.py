# loader `loader = DataLoader`; hot `padded = np.pad` 0.2; hot `return np.abs` 0.2
import functools
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def spectrum_of(wave):
    padded = np.pad(wave, 64)
    return np.abs(np.fft.rfft(padded))


class Waves(Dataset):
    def __init__(self, count):
        rng = np.random.default_rng(0)
        self.waves = rng.normal(size=(count, 4096))
        self.labels = rng.integers(0, 2, count)

    def __len__(self):
        return len(self.waves)

    def whole(self, index):
        return spectrum_of(self.waves[index])

    @functools.cache
    def __getitem__(self, index):
        spectrum = self.whole(index)
        return torch.from_numpy(spectrum).float(), int(self.labels[index])


data = Waves(256)
loader = DataLoader(data, batch_size=32, shuffle=True)
model = nn.Linear(2113, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(10):
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
