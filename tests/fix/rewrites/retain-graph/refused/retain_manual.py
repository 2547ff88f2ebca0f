# hot `loss.backward(` 0.3 -> refused: `loss` is handed to `second_pass`
import torch
from torch import nn
from lib import second_pass
model = nn.Linear(8, 4)
for x in torch.randn(10, 4, 8):
    loss = model(x).mean()
    loss.backward(retain_graph=True)
    second_pass(loss)
