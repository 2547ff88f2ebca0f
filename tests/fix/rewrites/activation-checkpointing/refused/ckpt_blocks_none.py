# died `x = blk` -> refused: `LazyBatchNorm1d` keeps statistics of batches
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(8, 8), nn.LazyBatchNorm1d()) for _ in range(3)])
    def forward(self, x):
        for blk in self.blocks:
            x = blk(x)
        return x
