# hot `first.backward(retain` 0.4 -> refused: calls `backward` too
import torch
from torch import nn

model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in torch.randn(100, 8, 4):
    optimizer.zero_grad()
    out = model(x)
    first, second = out[:, 0].mean(), out[:, 1].pow(2).mean()
    first.backward(retain_graph=True)
    second.backward()
    optimizer.step()
