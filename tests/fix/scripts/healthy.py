"""Nothing is wrong here."""

import sys

import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(1)
data = TensorDataset(torch.randn(256, 512), torch.randint(0, 4, (256,)))
net = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 4))
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for epoch in range(int(sys.argv[1])):
    net.train()
    running = 0.0
    for x, y in DataLoader(data, batch_size=32, shuffle=True):
        loss = torch.nn.functional.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        running += loss.item()
    net.eval()
    with torch.no_grad():
        hits = sum((net(x).argmax(1) == y).sum().item() for x, y in DataLoader(data, batch_size=64))
    print(f"epoch {epoch} loss {running:.4f} hits {hits}")
