# loader `loader = DataLoader`; workers 2
import torch
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(256, 8), torch.randn(256, 1))
loader = DataLoader(data, 16, True, num_workers=2, pin_memory=False)
for x, y in loader:
    torch.dot(x.mean(1), y.flatten())
