# hot `extra = torch.ones` 0.3 -> refused: is trained
import torch
from torch import nn

model = nn.Linear(8, 8)
weights = torch.ones(8, 8)
shape = (8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(100):
    x = torch.randn(4, 8)
    extra = torch.ones(8, 8, requires_grad=True)
    optimizer.zero_grad()
    loss = (model(x) @ extra).pow(2).mean()
    loss.backward()
    optimizer.step()
