"""Two ranks that exchange a large model after tiny steps."""

import torch
import torch.distributed as dist
from parts import PACE, mlp, one_arena, threads
from torch.nn.parallel import DistributedDataParallel

threads()
one_arena()
dist.init_process_group("gloo")
model = DistributedDataParallel(mlp(hidden=2048, depth=4))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
while not PACE.time_is_up():
    loss = model(torch.randn(4, 64)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    PACE.step()
dist.destroy_process_group()
