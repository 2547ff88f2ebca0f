# hot `second = model(x)` 0.3 -> refused: both results go into a backward
import torch
from torch import nn

model = nn.Linear(8, 4)
for x in torch.ones(50, 16, 8):
    first = model(x)
    second = model(x)
    (first.mean() + second.pow(2).mean()).backward()
