# hot `rows = json` 0.5 -> refused: changes `rows` in place
import json, torch
from torch.utils.data import Dataset
class D(Dataset):
    def __init__(self, path):
        self.path = path
    def __getitem__(self, i):
        rows = json.load(open(self.path))
        for row in rows["items"]:
            row.pop("x")
        return torch.tensor(rows["n"])
