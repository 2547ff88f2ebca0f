# hot `loss.backward(retain` 0.4 -> refused: made outside of the loop
import torch
from torch import nn

model = nn.Linear(4, 3)
for x in torch.randn(100, 8, 4):
    losses = model(x).mean(0)
    for loss in losses:
        loss.backward(retain_graph=True)
