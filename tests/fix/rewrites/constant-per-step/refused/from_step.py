# hot `extra = torch.full` 0.3 -> refused: changes between two steps
import torch
from torch import nn

model = nn.Linear(8, 8)
weights = torch.ones(8, 8)
shape = (8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(100):
    x = torch.randn(4, 8)
    extra = torch.full((8, 8), float(step))
    optimizer.zero_grad()
    loss = (model(x) @ extra).pow(2).mean()
    loss.backward()
    optimizer.step()
