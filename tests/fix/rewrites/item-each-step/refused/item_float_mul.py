# cuda; hot `running += loss` 0.3 -> refused: uses `running` as a plain number
import torch
from torch import nn
model = nn.Linear(8, 4).cuda()
running = 0.0
for i, x in enumerate(torch.ones(10, 4, 8).cuda()):
    loss = model(x).mean()
    running += loss.item()
    print(f"{running!r}")
