# cuda; hot `right += (` 0.3 -> refused: uses `right` as a plain number
import torch
from torch import nn
model = nn.Linear(8, 4).cuda()
right = 0
for i, x in enumerate(torch.ones(10, 4, 8).cuda()):
    right += (model(x).argmax(1) == 0).sum().item()
print(f"{right:d}")
