# loader `loader = Data`; workers 2 -> refused: `r` draws random numbers for a sample
import torch
from numpy.random import rand as r
from torch.utils.data import DataLoader, Dataset
class D(Dataset):
    def __len__(self): return 64
    def __getitem__(self, i):
        return torch.tensor(r())
loader = DataLoader(D(), batch_size=8)
for x in loader: print(x.sum())
