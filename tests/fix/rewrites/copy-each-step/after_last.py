# hot `snapshot` 0.3
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
    if step + 1 == 100:
        snapshot = copy.deepcopy(model.state_dict())
print(sum(one.sum() for one in snapshot.values()))
