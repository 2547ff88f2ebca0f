# hot `table = torch.tensor` 0.4 -> refused: depends on `tokens
import math

import torch
from torch import nn


class Sorter(nn.Module):
    def __init__(self, dim=8, length=16):
        super().__init__()
        self.dim = dim
        self.length = length
        self.embed = nn.Embedding(4, dim)

    def forward(self, tokens):
        table = torch.tensor([[math.sin(pos / 10 ** (i / self.dim)) for i in range(self.dim)] for pos in tokens[0]])
        return self.embed(tokens) + table


model = Sorter()
for step in range(5):
    model(torch.zeros(2, 16, dtype=torch.long)).pow(2).mean().backward()
