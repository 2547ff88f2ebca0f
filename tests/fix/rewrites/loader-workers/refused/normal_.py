# loader `loader = Data`; workers 2 -> refused: `x.normal_` draws random numbers for a sample
import torch
from torch.utils.data import DataLoader, Dataset
class D(Dataset):
    def __len__(self): return 64
    def __getitem__(self, i):
        x = torch.zeros(8)
        x.normal_()
        return x
loader = DataLoader(D(), batch_size=8)
for x in loader: print(x.sum())
