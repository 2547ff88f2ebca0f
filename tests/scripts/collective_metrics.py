"""Gathers every prediction object from all ranks in each step."""

import torch
import torch.distributed as dist
from parts import PACE, mlp, one_arena, threads

threads()
one_arena()
dist.init_process_group("gloo")
model = mlp()
optimizer = torch.optim.SGD(model.parameters(), 0.01)
while not PACE.time_is_up():
    loss = model(torch.randn(64, 64)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()
    found = [None] * dist.get_world_size()
    dist.all_gather_object(found, [float(x) for x in range(2000)])
    buffer = torch.randn(2_000_000)
    dist.all_reduce(buffer)
    PACE.step()
dist.destroy_process_group()
