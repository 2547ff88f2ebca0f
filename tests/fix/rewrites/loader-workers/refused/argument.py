# loader `loader = DataLoader`; workers 2 -> refused: decides the number of workers
import random

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Data(Dataset):
    def __init__(self):
        self.items = torch.randn(256, 8)
        self.seen = {}
        self.rng = None

    def __len__(self):
        return 256

    def __getitem__(self, index):
        index = int(index)
        return self.items[index]


data = Data()
loader = DataLoader(data, batch_size=16, num_workers=len(data) % 2)
for x in loader:
    x.sum()
