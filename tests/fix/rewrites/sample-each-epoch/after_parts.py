# loader `loader = DataLoader`; hot `spectrum = np.abs` 0.6
import functools
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split


class Waves(Dataset):
    def __init__(self, count):
        rng = np.random.default_rng(0)
        self.waves = rng.normal(size=(count, 4096))
        self.labels = rng.integers(0, 2, count)

    def __len__(self):
        return len(self.waves)

    @functools.cache
    def __getitem__(self, index):
        spectrum = np.abs(np.fft.rfft(self.waves[index]))
        return torch.from_numpy(spectrum).float(), int(self.labels[index])


class Trainer:
    def __init__(self):
        whole = Waves(256)
        train, self.held = random_split(whole, [224, 32], generator=torch.Generator().manual_seed(0))
        loader = DataLoader(train, batch_size=32, shuffle=True, num_workers=0)
        self.loader, self.model = loader, nn.Linear(2049, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def fit(self):
        for epoch in range(10):
            for x, y in self.loader:
                self.optimizer.zero_grad()
                nn.functional.cross_entropy(self.model(x), y).backward()
                self.optimizer.step()
            for x, y in DataLoader(self.held, batch_size=32):
                print(self.model(x).argmax(1).eq(y).sum().item())


Trainer().fit()
