# hot `rows = json` 0.5 -> refused: `self.path` is not set in `__init__` alone
import json, torch
from torch.utils.data import Dataset
class D(Dataset):
    def __init__(self, path):
        self.path = path
    def use(self, path):
        self.path = path
    def __getitem__(self, i):
        rows = json.load(open(self.path))
        return torch.tensor(rows[i])
