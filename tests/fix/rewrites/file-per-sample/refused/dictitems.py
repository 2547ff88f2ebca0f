# hot `rows = json.load(` 0.5 -> refused: changes `rows` in place
import json, numpy as np, torch, copy, random
from torch.utils.data import DataLoader, Dataset

class Data(Dataset):
    def __init__(self, path):
        self.path = path

    def __len__(self):
        return 500

    def __getitem__(self, i):
        rows = json.load(open(self.path))
        for k, v in rows.items():
            v.append(1)
        return torch.tensor(rows[str(i)])



for x in DataLoader(Data('rows.json')):
    x.sum()
