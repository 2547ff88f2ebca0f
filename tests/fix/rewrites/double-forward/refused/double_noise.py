# hot `again = model(x)` 0.3 -> refused: draws random numbers in a forward
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.l = nn.Linear(8, 4)
    def forward(self, x):
        return self.l(x) + torch.randn(4)
model = Net()
for x in torch.randn(10, 4, 8):
    out = model(x)
    out.mean().backward()
    with torch.no_grad():
        again = model(x)
    print(again.mean())
