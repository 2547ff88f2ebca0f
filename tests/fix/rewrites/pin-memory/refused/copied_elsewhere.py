# loader `loader = DataLoader`; cuda; hot `return batch.cuda` 0.2 -> refused: outside of a loop
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def moved(batch):
    return batch.cuda()


model = nn.Linear(8, 1).cuda()
loader = DataLoader(TensorDataset(torch.randn(256, 8)), batch_size=16)
for (x,) in loader:
    model(moved(x)).sum().backward()
