# keeps `terms.append(` -> refused: `terms` goes into a backward later
import torch
from torch import nn
model = nn.Linear(8, 4)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
out = {}
for x in torch.randn(10, 4, 8):
    terms = []
    for k in range(3):
        terms.append(model(x)[:, k].mean())
    out["loss"] = sum(terms)
    out["loss"].backward()
    opt.step()
