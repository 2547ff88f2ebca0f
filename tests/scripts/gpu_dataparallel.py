"""nn.DataParallel over all GPUs: outputs and the loss gather on the first one."""

import torch
from parts import PACE, threads
from torch import nn

CLASSES = 50_000

threads()
model = nn.DataParallel(nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, CLASSES))).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.01)
inputs, targets = torch.randn(4096, 256, device="cuda"), torch.randint(0, CLASSES, (4096,), device="cuda")
step = 0
while not PACE.time_is_up():
    loss = nn.functional.cross_entropy(model(inputs), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step += 1
    if step % 20 == 0:
        loss.item()
    PACE.step()
