"""torch.compile with a shape that changes in every step."""

import torch
from parts import PACE, mlp, threads
from torch import nn

threads()
torch._dynamo.config.cache_size_limit = 10_000
torch._dynamo.config.accumulated_cache_size_limit = 100_000
model = torch.compile(mlp(hidden=1024), dynamic=False, backend="aot_eager")
optimizer = torch.optim.SGD(model.parameters(), 0.1)
length = 256
while not PACE.time_is_up():
    length += 1
    loss = nn.functional.cross_entropy(model(torch.randn(length, 64)), torch.zeros(length, dtype=torch.long))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    PACE.step()
