# hot `loss.backward(ret` 0.3 -> refused: `mem` goes from one step into the next
import torch
from torch import nn
mem = [torch.zeros(8)]
model = nn.Linear(8, 8)
for x in torch.randn(10, 8):
    h = model(x + mem[0])
    mem[0] = h
    loss = h.mean()
    loss.backward(retain_graph=True)
