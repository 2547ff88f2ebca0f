# hot `scale = torch.tensor` 0.3 -> refused: hands `scale` on
import torch
from torch import nn
class M(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.n = n
        self.w = nn.Parameter(torch.ones(n))
    def forward(self, x):
        scale = torch.tensor([self.n, 1.0], device=x.device)
        self.last = scale
        return x * scale
