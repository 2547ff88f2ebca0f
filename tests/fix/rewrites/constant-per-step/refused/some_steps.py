# hot `extra = torch.eye` 0.3 -> refused: sets or changes `extra` again
import torch
from torch import nn

model = nn.Linear(8, 8)
weights = torch.ones(8, 8)
shape = (8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(100):
    x = torch.randn(4, 8)
    extra = weights
    if step % 2:
        extra = torch.eye(8)
    optimizer.zero_grad()
    loss = (model(x) @ extra).pow(2).mean()
    loss.backward()
    optimizer.step()
