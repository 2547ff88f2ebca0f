# graph `out = model(x)` -> refused: `report` is given the model and is not in this file
import torch
from torch import nn
from lib import report
model = nn.Linear(8, 4)
def test(model, loader):
    for x in loader:
        out = model(x)
        report(model, out)
test(model, torch.randn(3, 4, 8))
