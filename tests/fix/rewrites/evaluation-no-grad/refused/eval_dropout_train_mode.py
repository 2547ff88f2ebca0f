# graph `out = model(x)` -> refused: `explain_all` sounds as if it takes gradients
import torch
from torch import nn
from captum import explain_all
model = nn.Linear(8, 4)
def test(model, loader):
    for x in loader:
        out = model(x)
        explain_all(model, x, out)
test(model, torch.randn(3, 4, 8))
