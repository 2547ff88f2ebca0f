# hot `x = torch.from_numpy(` 0.4
import functools
import os

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


@functools.lru_cache(maxsize=64)
def _load_shard(path):
    return dict(np.load(path))


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
        shard = _load_shard(path)
        x = torch.from_numpy(shard["x"][i])
        y = int(shard["y"][i])
        return (x - x.mean()) / x.std(), y


def main(folder):
    for x, _ in DataLoader(Shards(folder), batch_size=4, shuffle=True):
        torch.nn.functional.relu(x)
