# hot `grid[i, j, k]` 0.4
import math

import torch
from torch import nn

WAVES = 8


class Field(nn.Module):
    def __init__(self, height, width):
        super().__init__()
        self.height = height
        self.width = width
        self.head = nn.Linear(2 * WAVES, 1)
        self._grid = {}

    def forward(self, x):
        if x.device not in self._grid:
            grid = torch.zeros(self.height, self.width, 2 * WAVES)
            for i in range(self.height):
                for j in range(self.width):
                    for k in range(WAVES):
                        grid[i, j, k] = math.sin(i / 3**k)
                        grid[i, j, WAVES + k] = math.cos(j / 3**k)
            grid = grid.to(x.device)
            self._grid = {x.device: grid}
        grid = self._grid[x.device]
        return self.head(grid).squeeze(-1) * x


torch.manual_seed(0)
model = Field(6, 5)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(5):
    loss = model(torch.randn(4, 6, 5)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
