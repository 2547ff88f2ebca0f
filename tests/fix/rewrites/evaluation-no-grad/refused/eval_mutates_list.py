# graph `outs.append(model` -> refused: gives something to `outs`
import torch
from torch import nn
model = nn.Linear(8, 4)
def evaluate(model, x, outs):
    model.eval()
    outs.append(model(x))
for x in torch.randn(10, 4, 8):
    outs = []
    evaluate(model, x, outs)
    outs[0].mean().backward()
