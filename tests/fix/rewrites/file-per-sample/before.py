# hot `table = pd.read_csv` 0.6
import pandas as pd
import torch
from torch.utils.data import DataLoader, Dataset


class Houses(Dataset):
    def __init__(self, path, target="price"):
        self.path = path
        self.target = target

    def __len__(self):
        return 500

    def __getitem__(self, index):
        table = pd.read_csv(self.path)
        row = table.iloc[index]
        return torch.tensor([row["rooms"], row["area"]]), torch.tensor([row[self.target]])


for x, y in DataLoader(Houses("houses.csv"), batch_size=16, shuffle=True):
    torch.dot(x.mean(1), y.flatten())
