# hot `snapshot` 0.3 -> refused: may leave the loop
import copy

import torch
from torch import nn

model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x, y = torch.randn(64, 8), torch.randn(64, 1)
for step in range(100):
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    snapshot = copy.deepcopy(model.state_dict())
    if loss.item() < 0.1:
        break
model.load_state_dict(snapshot)
