# hot `snapshot` 0.3 -> refused: in the loop and outside of it
import copy

import torch
from torch import nn

model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x, y = torch.randn(64, 8), torch.randn(64, 1)
best, kept = float("inf"), None
for step in range(100):
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    snapshot = copy.deepcopy(model.state_dict())
    if loss.item() < best:
        best, kept = loss.item(), snapshot
torch.save(snapshot, "last.pt")
