# hot `rows = json.load(` 0.5 -> refused: hands `rows` to `augment`
import json, numpy as np, torch, copy, random
from torch.utils.data import DataLoader, Dataset

class Data(Dataset):
    def __init__(self, path):
        self.path = path

    def __len__(self):
        return 500

    def __getitem__(self, i):
        rows = json.load(open(self.path))
        return self.augment(rows[i])



for x in DataLoader(Data('rows.json')):
    x.sum()
