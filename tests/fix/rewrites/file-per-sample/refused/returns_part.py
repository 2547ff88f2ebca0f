# hot `rows = np.load` 0.5 -> refused: sets or changes `x` again
import numpy as np, torch
from torch.utils.data import Dataset
class D(Dataset):
    def __init__(self, path):
        self.path = path
    def __getitem__(self, i):
        rows = np.load(self.path)
        x = rows[i]
        x -= x.mean()
        return torch.from_numpy(x)
