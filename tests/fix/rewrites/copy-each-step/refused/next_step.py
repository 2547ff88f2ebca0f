# hot `snapshot` 0.3 -> refused: is used in each step, or in the next one
import copy

import torch
from torch import nn

model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x, y = torch.randn(64, 8), torch.randn(64, 1)
loss, snapshot = torch.zeros(()), None
for step in range(100):
    if snapshot is not None and loss.isnan():
        model.load_state_dict(snapshot)
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    snapshot = copy.deepcopy(model.state_dict())
