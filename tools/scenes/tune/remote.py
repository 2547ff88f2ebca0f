"""Pictures that arrive over a network: every sample takes 20 ms to arrive."""

import time

import torch
from torch import nn


class Pictures(torch.utils.data.Dataset):
    def __init__(self, count=20_000):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        time.sleep(0.02)
        generator = torch.Generator().manual_seed(index)
        return torch.rand(3, 32, 32, generator=generator), index % 10


def build():
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(4), nn.Flatten(), nn.Linear(16 * 8 * 8, 10)
    )
