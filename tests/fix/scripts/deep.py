"""The activations of its blocks do not fit under a limit, and it dies in its first step."""

import sys

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.full((width,), 0.1))

    def forward(self, x):
        return x + torch.tanh(self.scale * x)


class Deep(nn.Module):
    def __init__(self, width, blocks):
        super().__init__()
        self.blocks = nn.ModuleList([Block(width) for _ in range(blocks)])
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


torch.manual_seed(0)
model = Deep(64, 16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x, y = torch.randn(int(sys.argv[2]), 64), torch.randn(int(sys.argv[2]), 1)
for _ in range(int(sys.argv[1])):
    loss = ((model(x) - y) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
