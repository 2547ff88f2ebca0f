# loader `loader = Data`; workers 2 -> refused: `self.transform` may be `augment`
import torch, random
from torch.utils.data import DataLoader, Dataset
def augment(x):
    return x * random.random()
class D(Dataset):
    def __init__(self, transform): self.transform = transform
    def __len__(self): return 64
    def __getitem__(self, i): return self.transform(torch.tensor(float(i)))
loader = DataLoader(D(augment), batch_size=8)
for x in loader: print(x.sum())
