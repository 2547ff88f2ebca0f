# loader `loader = Data`; workers 2 -> refused: changes `data.level`
import torch
from torch.utils.data import DataLoader, Dataset
class D(Dataset):
    def __init__(self): self.level = 0
    def __len__(self): return 64
    def __getitem__(self, i): return torch.tensor(float(i) + self.level)
data = D()
loader = DataLoader(data, batch_size=8)
for step, x in enumerate(loader):
    data.level += 1
    print(x.sum())
