# hot `rows = json.load` 0.5 -> refused: sets or changes `row
import json
import random

import torch
from torch.utils.data import DataLoader, Dataset


class Data(Dataset):
    def __init__(self, path):
        self.path = path
        self.rows = None

    def __len__(self):
        return 500

    def __getitem__(self, index):
        rows = json.load(open(self.path))
        row = rows[index]
        row["seen"] = True
        return torch.tensor(row["x"])


for x in DataLoader(Data("rows.json")):
    x.sum()
