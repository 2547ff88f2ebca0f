# keeps `penalty += p.pow` -> refused: `penalty` goes into a backward later
import torch
from torch import nn
model = nn.Linear(8, 4)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
def l2(model):
    penalty = 0.0
    for p in model.parameters():
        penalty += p.pow(2).sum()
    return penalty
for x in torch.randn(10, 4, 8):
    (model(x).mean() + l2(model)).backward()
    opt.step()
