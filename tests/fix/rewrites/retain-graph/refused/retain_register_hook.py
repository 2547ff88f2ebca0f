# hot `loss.backward(` 0.3 -> refused: calls `backward` too
import torch
from torch import nn
model = nn.Linear(8, 4)
saved = []
for x in torch.randn(10, 4, 8):
    out = model(x)
    loss = out.mean()
    loss.backward(retain_graph=True)
    saved.append(loss)
total = sum(saved)
total.backward()
