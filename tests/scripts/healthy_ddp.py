"""Two ranks with enough to compute between the exchanges."""

import torch
import torch.distributed as dist
from parts import PACE, conv, one_arena, threads
from torch import nn
from torch.nn.parallel import DistributedDataParallel

threads()
one_arena()
dist.init_process_group("gloo")
model = DistributedDataParallel(conv(48))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
images = torch.randn(32, 3, 64, 64)
targets = torch.randint(0, 10, (32,))
while not PACE.time_is_up():
    loss = nn.functional.cross_entropy(model(images), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    PACE.step()
dist.destroy_process_group()
