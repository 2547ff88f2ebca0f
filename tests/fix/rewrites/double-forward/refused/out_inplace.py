# hot `again = model(x)` 0.3 -> refused: sets one of the names between the two calls
import torch
from torch import nn
model = nn.Linear(8, 4)
for x in torch.ones(10, 4, 8):
    out = model(x)
    out -= 1
    out.mean().backward()
    with torch.no_grad():
        again = model(x)
    print(again.mean())
