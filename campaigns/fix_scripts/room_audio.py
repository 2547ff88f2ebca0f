"""Room size from an impulse response: 1d conv net, checked on a held out set every so often."""
import math

import torch
from torch import nn


def impulse_responses(n, length=1024, seed=0):
    g = torch.Generator().manual_seed(seed)
    size = torch.rand(n, generator=g)
    t = torch.arange(length) / length
    decay = torch.exp(-t[None] * (12 - 10 * size[:, None]))
    return (torch.randn(n, length, generator=g) * decay).unsqueeze(1), size


class RoomNet(nn.Module):
    def __init__(self):
        super().__init__()
        layers, channels = [], 1
        for width in (16, 32, 32, 64):
            layers += [nn.Conv1d(channels, width, 9, padding=4), nn.GELU(), nn.AvgPool1d(2)]
            channels = width
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(channels, 1)

    def forward(self, x):
        return self.head(self.body(x).mean(2)).squeeze(1)


torch.manual_seed(8)
x, y = impulse_responses(4000, seed=1)
x_test, y_test = impulse_responses(1500, seed=2)
net = RoomNet()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
mse = nn.MSELoss()

best = math.inf
for step in range(400):
    idx = torch.randint(0, len(x), (32,))
    loss = mse(net(x[idx]), y[idx])
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 19:
        net.eval()
        errors = []
        for xb, yb in zip(x_test.split(500), y_test.split(500)):
            errors.append((net(xb) - yb).abs().mean().item())
        error = sum(errors) / len(errors)
        net.train()
        best = min(best, error)
        print(f"step {step + 1} train mse {loss.item():.5f} test mae {error:.5f} best {best:.5f}")
