# anomaly -> refused: around a backward
import re, random
import numpy as np
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset
model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
import contextlib
torch.autograd.set_detect_anomaly(True)
for step in range(100):
    with contextlib.suppress(RuntimeError):
        loss = model(torch.ones(4, 8)).sum()
        loss.backward()
        opt.step()
