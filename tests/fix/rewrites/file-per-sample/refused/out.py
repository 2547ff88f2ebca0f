# hot `rows = np.load(` 0.5 -> refused: hands `rows` to `clip`
import json, numpy as np, torch, copy, random
from torch.utils.data import DataLoader, Dataset

class Data(Dataset):
    def __init__(self, path):
        self.path = path

    def __len__(self):
        return 500

    def __getitem__(self, i):
        rows = np.load(self.path)
        np.clip(rows[i], 0, 1, rows[i])
        return torch.tensor(rows[i])



for x in DataLoader(Data('rows.json')):
    x.sum()
