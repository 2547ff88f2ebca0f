# hot `mask = torch.triu` 0.3
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width, length):
        super().__init__()
        self.length = length
        self.project = nn.Linear(width, 3 * width)

    def forward(self, x):
        q, k, v = self.project(x).chunk(3, dim=-1)
        # no looking ahead
        mask = torch.triu(torch.ones(self.length, self.length, device=x.device), diagonal=1).bool()
        scores = (q @ k.transpose(1, 2)).masked_fill(mask, float("-inf"))
        return scores.softmax(-1) @ v


block = Block(64, 128)
optimizer = torch.optim.SGD(block.parameters(), lr=0.1)
for step in range(100):
    optimizer.zero_grad()
    block(torch.randn(4, 128, 64)).pow(2).mean().backward()
    optimizer.step()
