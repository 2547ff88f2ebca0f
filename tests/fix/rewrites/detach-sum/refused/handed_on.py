# keeps `total += loss` -> refused: handed to `penalize`
import torch
from torch import nn

from helpers import penalize

model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
total = 0
for x in torch.randn(100, 8, 4):
    loss = model(x).pow(2).mean()
    loss.backward()
    optimizer.step()
    total += loss
penalize(model, total)
