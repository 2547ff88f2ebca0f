# graph `out = model(x)` -> refused: `do_update` is given the model and is not in this file
import torch
from torch import nn
from lib import do_update
model = nn.Linear(8, 4)
def valid_epoch(model, loader):
    for x in loader:
        out = model(x)
        do_update(model, x)
valid_epoch(model, torch.randn(3, 4, 8))
