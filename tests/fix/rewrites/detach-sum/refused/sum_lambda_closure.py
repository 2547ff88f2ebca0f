# keeps `total += loss` -> refused: `total` goes into a backward later
import torch
from torch import nn
model = nn.Linear(8, 4)
opt = torch.optim.LBFGS(model.parameters())
def closure():
    opt.zero_grad()
    total = 0
    for x in torch.randn(10, 4, 8):
        loss = model(x).mean()
        total += loss
    run(total)
    return total
def run(value):
    value.backward()
opt.step(closure)
