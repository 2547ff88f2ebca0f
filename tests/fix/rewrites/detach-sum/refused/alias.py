# keeps `terms.append(` -> refused: makes `terms` of something that is known by another name too
import torch
from torch import nn
model = nn.Linear(8, 4)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
bag = {"terms": []}
for xs in torch.randn(10, 5, 4, 8):
    terms = bag["terms"]
    for x in xs:
        terms.append(model(x).mean())
    sum(bag["terms"]).backward()
    bag["terms"] = []
    opt.step()
