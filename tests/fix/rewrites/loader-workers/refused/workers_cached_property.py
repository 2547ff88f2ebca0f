# loader `loader = Data`; workers 2 -> refused: `D` changes `COUNT`
import torch
from torch.utils.data import DataLoader, Dataset
COUNT = [0]
class D(Dataset):
    def __len__(self): return 64
    def __getitem__(self, i):
        COUNT[0] += 1
        return torch.tensor(float(COUNT[0]))
loader = DataLoader(D(), batch_size=8)
for x in loader: print(x.sum())
