# hot `scores = ` 0.4
import itertools

import torch
from torch import nn


class Gate(nn.Module):
    def __init__(self, window: int = 4) -> None:
        super().__init__()
        self.window = window

    def forward(self, x):
        x[:, : self.window] += 1
        return x


class Attention(nn.Module):
    def __init__(self, dim: int, window: int = 8) -> None:
        super().__init__()
        self.window = window
        self.qkv = nn.Linear(dim, 3 * dim)
        self._distances = {}

    def distances(self, t: int):
        far = torch.ones(t, t, dtype=torch.bool)
        for i, j in itertools.product(range(t), repeat=2):
            if 0 <= i - j < self.window:
                far[i, j] = False
        return far

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        if t not in self._distances:
            self._distances = {t: self.distances(t)}
        scores = (q @ k.transpose(1, 2)).masked_fill(self._distances[t], -9.0)
        return scores.softmax(-1) @ v


torch.manual_seed(0)
model = Attention(16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(20):
    loss = model(torch.randn(4, 16 + 16 * (step > 10), 16)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
