# hot `rows = np.load(` 0.5 -> refused: sets or changes `x[0]`
import json, numpy as np, torch, copy, random
from torch.utils.data import DataLoader, Dataset

class Data(Dataset):
    def __init__(self, path):
        self.path = path

    def __len__(self):
        return 500

    def __getitem__(self, i):
        rows = np.load(self.path)
        x = rows[i].reshape(2, -1)
        x[0] = 1
        return torch.tensor(x)



for x in DataLoader(Data('rows.json')):
    x.sum()
