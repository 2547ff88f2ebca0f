"""Trains for an epoch of many steps, and evaluates with gradients behind it; a frozen part runs in each step."""

import torch
from torch import nn

torch.manual_seed(0)
frozen = nn.Linear(8, 8)
frozen.eval()
model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data, labels = torch.randn(64, 8), torch.randint(0, 2, (64,))


def evaluate(model):
    model.eval()
    correct = 0
    for start in range(0, 64, 8):
        correct += (model(data[start : start + 8]).argmax(1) == labels[start : start + 8]).sum().item()
    return correct


for _epoch in range(3):
    model.train()
    for _step in range(80):
        loss = nn.functional.cross_entropy(model(frozen(data)), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(evaluate(model))
