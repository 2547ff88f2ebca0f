# loader `loader = DataLoader`; workers 2 -> refused: draws random numbers for a sample
import re, random
import numpy as np
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset

class Base(Dataset):
    def __getitem__(self, i):
        return torch.rand(8)

class Data(Base):
    def __init__(self):
        self.n = 3
    def __len__(self):
        return 500

model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(Data(), 16)
for x in loader:
    loss = model(x).sum()
    loss.backward()
    opt.step()
