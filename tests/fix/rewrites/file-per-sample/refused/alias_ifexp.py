# hot `rows = np.load(` 0.5 -> refused: sets or changes `x` again
import json, numpy as np, torch, copy, random
from torch.utils.data import DataLoader, Dataset

class Data(Dataset):
    def __init__(self, path):
        self.path = path

    def __len__(self):
        return 500

    def __getitem__(self, i):
        rows = np.load(self.path)
        x = rows[i] if i else rows[0]
        x += 1
        return torch.tensor(x)



for x in DataLoader(Data('rows.json')):
    x.sum()
