"""Rank 1 leaves the loop and waits for a file that never comes; rank 0 waits for it in a collective."""

import os
import threading

import torch
import torch.distributed as dist
from parts import mlp, threads

threads()
dist.init_process_group("gloo")
model = mlp()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(1_000_000):
    loss = model(torch.randn(32, 64)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    if step == 20 and dist.get_rank() == 1:
        threading.Event().wait()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()
os._exit(0)
