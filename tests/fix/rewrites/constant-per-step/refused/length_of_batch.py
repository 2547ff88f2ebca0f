# hot `mask = torch.triu` 0.3 -> refused: depends on `x`
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(8, 8)

    def forward(self, x):
        mask = torch.triu(torch.ones(x.size(1), x.size(1)), diagonal=1)
        return self.project(mask @ x)


block = Block()
for step in range(100):
    block(torch.randn(4, 1 + step % 9, 8)).mean().backward()
