# hot `weights = affinity` 0.4
import torch
from torch import nn

SCALE = 0.5


def make_points(count):
    points = torch.randn(count, 8)
    points = points - points.mean(0)
    return points, torch.randint(0, 3, (count,))


def affinity(points, scale):
    close = torch.exp(-torch.cdist(points, points).pow(2) / scale)
    return close * close.sum(1).rsqrt()[:, None]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(8, 3)
        self._weights_of = self._weights = None

    def forward(self, points):
        if self._weights_of is not points:
            weights = affinity(points, SCALE)
            self._weights_of, self._weights = points, weights
        weights = self._weights
        return weights @ self.lin(points)


points, labels = make_points(400)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(50):
    loss = nn.functional.cross_entropy(model(points), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
