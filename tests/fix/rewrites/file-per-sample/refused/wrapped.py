# hot `rows = json` 0.5 -> refused: hands `rows` on
import json, numpy as np, torch, copy, random
from torch.utils.data import DataLoader, Dataset

class Data(Dataset):
    def __init__(self, path):
        self.path = path

    def __len__(self):
        return 500

    def __getitem__(self, i):
        rows = json.load(open(self.path))
        return rows[i]



class Noisy(Dataset):
    def __init__(self, inner):
        self.inner = inner

    def __len__(self):
        return len(self.inner)

    def __getitem__(self, i):
        row = self.inner[i]
        row[0] += 1
        return torch.tensor(row)


for x in DataLoader(Noisy(Data('rows.json'))):
    x.sum()
