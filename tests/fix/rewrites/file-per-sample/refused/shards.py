# hot `rows = json.load` 0.5 -> refused: is not set in `__init__` alone
import json
import random

import torch
from torch.utils.data import DataLoader, Dataset


class Data(Dataset):
    def __init__(self, path):
        self.path = path
        self.shard = path

    def __len__(self):
        return 500

    def __getitem__(self, index):
        rows = json.load(open(self.shard))
        self.shard = f"{self.path}.{index % 7}"
        return torch.tensor(rows[0])


for x in DataLoader(Data("rows.json")):
    x.sum()
