# hot `x = torch.from_numpy(` 0.4 -> nothing
import os

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Shards(Dataset):
    def __init__(self, folder):
        self.index = []
        for name in sorted(os.listdir(folder)):
            path = os.path.join(folder, name)
            self.index += [(path, i) for i in range(len(np.load(path)["y"]))]

    def __len__(self):
        return len(self.index)

    def __getitem__(self, k):
        path, i = self.index[k]
        shard = np.load(path)
        x = torch.from_numpy(shard["x"][0])
        y = int(shard["y"][0])
        return (x - x.mean()) / x.std(), y


def main(folder):
    for x, _ in DataLoader(Shards(folder), batch_size=4, shuffle=True):
        torch.nn.functional.relu(x)
