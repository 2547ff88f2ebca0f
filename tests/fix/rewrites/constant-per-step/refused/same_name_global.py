# hot `weights = affinity` 0.4 -> nothing
import torch
from torch import nn


def move():
    global points
    points = points + 1


def affinity(points):
    return torch.exp(-torch.cdist(points, points).pow(2))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(8, 3)

    def forward(self, points):
        weights = affinity(points)
        return weights @ self.lin(points)


points, labels = torch.randn(400, 8), torch.randint(0, 3, (400,))
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(50):
    loss = nn.functional.cross_entropy(model(points), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    move()
