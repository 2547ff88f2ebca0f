# graph `out = model(x)` -> refused: what `predict` returns may go into a backward
import torch
from torch import nn
model = nn.Linear(8, 4)
def predict(x):
    out = model(x)
    return out
runner = {"fn": predict}
for x in torch.randn(10, 4, 8):
    loss = runner["fn"](x).var()
    loss.backward()
print(predict(torch.ones(4, 8)).shape)
