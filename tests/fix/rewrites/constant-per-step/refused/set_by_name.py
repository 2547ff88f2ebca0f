# hot `m = torch.ones` 0.3 -> refused: `self.n`
import re, random
import numpy as np
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset

class Net(nn.Module):
    def __init__(self, n=8):
        super().__init__()
        self.lin = nn.Linear(8, 8)
        self.n = n
        self.k = 0

    def forward(self, x):
        m = torch.ones(self.n, 8)
        return self.lin(x) * m.mean()

model = Net()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(100):
    loss = model(torch.ones(4, 8)).sum()
    loss.backward()
    opt.step()
    if step == 50:
        setattr(model, 'n', 4)
