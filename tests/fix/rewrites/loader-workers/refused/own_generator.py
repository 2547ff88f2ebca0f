# loader `loader = DataLoader`; workers 2 -> refused: draws random numbers for a sample
import random

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Data(Dataset):
    def __init__(self):
        self.items = torch.randn(256, 8)
        self.seen = {}
        self.rng = np.random.default_rng(0)

    def __len__(self):
        return 256

    def __getitem__(self, index):
        index = (index + int(self.rng.normal())) % 256
        return self.items[index]


data = Data()
loader = DataLoader(data, batch_size=16)
for x in loader:
    x.sum()
