# hot `rows = json` 0.5 -> refused: changes `rows` in place
import json, torch
from torch.utils.data import Dataset
class D(Dataset):
    def __init__(self, path):
        self.path = path
    def __getitem__(self, i):
        rows = json.load(open(self.path))
        rows["items"][i].append(1)
        return torch.tensor(rows["items"][i])
