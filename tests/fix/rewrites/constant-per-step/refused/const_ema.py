# hot `w = torch.full` 0.3 -> refused: it depends on `self.alpha`
import torch
from torch import nn
class M(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.alpha = n
        self.l = nn.Linear(n, n)
    def forward(self, x):
        w = torch.full((8,), self.alpha, device=x.device)
        return self.l(x) * w
m = M(8)
for step in range(100):
    m.alpha = step
    m(torch.ones(2, 8))
