# float64 0.9 -> refused: takes integers, and the code does not show which array contains them
import numpy as np
import torch
from torch import nn

rng = np.random.default_rng(0)
xs, ys = rng.normal(size=(512, 64)), rng.normal(size=(512, 1))
model = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 1))
model.double()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(200):
    x, y = torch.from_numpy(xs), torch.from_numpy(ys)
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
