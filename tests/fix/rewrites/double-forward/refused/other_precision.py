# hot `again = model(x)` 0.3 -> nothing
import torch
from torch import nn

model = nn.Linear(8, 4)
for x in torch.ones(10, 4, 8):
    out = model(x)
    out.mean().backward()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        again = model(x)
    print(again.mean())
