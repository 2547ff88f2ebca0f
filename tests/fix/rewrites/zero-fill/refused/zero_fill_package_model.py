# hot `opt.zero_grad` 0.05 -> refused: `model` is not made in this file
import torch
from torch import nn
from models import MoE
model = MoE()
opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for x in torch.randn(10, 4, 8):
    opt.zero_grad(set_to_none=False)
    model(x).mean().backward()
    opt.step()
