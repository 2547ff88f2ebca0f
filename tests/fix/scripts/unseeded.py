"""Anomaly detection was left on, and the seed comes from the clock."""

import sys
import time

import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(time.time_ns() % 1_000_003)
torch.autograd.set_detect_anomaly(True)
data = TensorDataset(torch.randn(256, 16), torch.randint(0, 4, (256,)))
net = torch.nn.Sequential(*[torch.nn.Linear(16, 16) for _ in range(40)], torch.nn.Linear(16, 4))
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for epoch in range(int(sys.argv[1])):
    for x, y in DataLoader(data, batch_size=16, shuffle=True):
        loss = torch.nn.functional.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
