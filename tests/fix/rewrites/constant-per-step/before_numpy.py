# hot `weights = ring` 0.3
import numpy as np
import torch
from torch import nn


def ring(size):
    buffer = np.zeros((size, size), dtype=np.float32)
    for i in range(size):
        for j in range(size):
            buffer[i, j] = np.exp(-((i - size / 2) ** 2 + (j - size / 2) ** 2) / size)
    return torch.from_numpy(buffer)


def ring_loss(out, target):
    weights = ring(target.shape[-1])
    return ((out - target) ** 2 * weights).mean()


torch.manual_seed(0)
model = nn.Conv2d(1, 1, 3, padding=1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(10):
    x = torch.randn(4, 1, 16, 16)
    loss = ring_loss(model(x), x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
