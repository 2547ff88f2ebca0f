# graph `total = total + nn` -> refused: may go into a backward
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def validation_loss(model, loader):
    total = 0.0
    for x, y in loader:
        total = total + nn.functional.mse_loss(model(x), y)
    return total / len(loader)


net = nn.Linear(8, 1)
alpha = torch.zeros(1, requires_grad=True)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
batches = DataLoader(TensorDataset(torch.randn(256, 8), torch.randn(256, 1)), batch_size=16)
for epoch in range(3):
    optimizer.zero_grad()
    outer = validation_loss(net, batches) * torch.sigmoid(alpha)
    outer.backward()
    optimizer.step()
