# loader `loader = DataLoader`; hot `spectrum = ` 0.6 -> refused: may be another one
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Waves(Dataset):
    def __init__(self, count):
        rng = np.random.default_rng(0)
        self.waves = rng.normal(size=(count, 4096))
        self.labels = rng.integers(0, 2, count)

    def __len__(self):
        return len(self.waves)

    def __getitem__(self, index):
        with np.errstate(all="ignore"):
            if index % 2:
                spectrum = np.abs(np.fft.rfft(self.waves[index]))
        spectrum = (spectrum if index % 2 else np.ones(2049)) * np.random.normal()
        return torch.from_numpy(spectrum).float(), int(self.labels[index])


data = Waves(256)
loader = DataLoader(data, batch_size=32, shuffle=True)
model = nn.Linear(2049, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(10):
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
