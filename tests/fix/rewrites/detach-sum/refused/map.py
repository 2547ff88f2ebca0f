# keeps `terms.append(` -> refused: `terms` goes into a backward later
import torch
from torch import nn
model = nn.Linear(8, 4)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for xs in torch.randn(10, 5, 4, 8):
    terms = []
    for x in xs:
        terms.append(model(x).mean())
    torch.autograd.backward(terms)
    opt.step()
