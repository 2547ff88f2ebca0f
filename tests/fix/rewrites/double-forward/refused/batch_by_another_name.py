# hot `acc = model` 0.3 -> refused: another name
import re, random
import numpy as np
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset
model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(100):
    x = torch.ones(4, 8)
    out = model(x)
    loss = out.sum()
    loss.backward()
    y = x.view(-1)
    y += 1
    with torch.no_grad():
        acc = model(x).sum()
    print(acc.item())
