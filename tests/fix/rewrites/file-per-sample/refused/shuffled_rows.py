# hot `rows = json.load` 0.5 -> refused: may change it
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
        random.shuffle(rows)
        return torch.tensor(rows[index])


for x in DataLoader(Data("rows.json")):
    x.sum()
