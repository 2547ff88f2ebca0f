# hot `data = json.load` 0.6
import json

import torch
from torch.utils.data import DataLoader, Dataset


class Sentences(Dataset):
    def __init__(self, path: str):
        super().__init__()
        self.path = path
        with open(self.path, encoding="utf-8") as file:  # a big one
            self._data = json.load(file)

    def __getitem__(self, index):
        data = self._data
        return torch.tensor(data["ids"][index])

    def __len__(self):
        return 500


for batch in DataLoader(Sentences("sentences.json"), batch_size=16):
    batch.sum()
