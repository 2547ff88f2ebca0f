# died `out = model(x)` -> refused: computes over all samples of a batch
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.l = nn.Linear(8, 4)
    def forward(self, x):
        return self.l(x) - self.l(x).mean(0)
model = Net()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in [(torch.ones(8, 8), torch.ones(8, 4))]:
    out = model(x)
    loss = nn.functional.mse_loss(out, y)
    loss.backward()
    opt.step()
