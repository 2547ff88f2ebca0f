# hot `b = model(x)` 0.3 -> refused: changes `b`
import torch
from torch import nn
model = nn.Sequential(nn.Linear(8, 4), nn.ReLU(inplace=True))
for x in torch.ones(10, 4, 8):
    a = model(x)
    with torch.no_grad():
        b = model(x)
    b += 1
    a.mean().backward()
