# died `out = model(x)` -> nothing
import torch
from torch import nn
import torch.nn.functional as F
model = nn.Linear(8, 4)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in [(torch.ones(8, 8), torch.ones(8, 4))]:
    out = model(x)
    loss = F.mse_loss(out, y, reduction="sum")
    loss.backward()
    opt.step()
