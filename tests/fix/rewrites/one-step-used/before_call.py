# hot `return self.head` 0.3
import torch
import torch.nn.functional as F
from torch import nn


class Next(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(32, 64, batch_first=True)
        self.out = nn.Sequential(nn.Linear(64, 64), nn.GELU())
        self.head = nn.Linear(64, 5000)

    def forward(self, x):
        hidden, _ = self.lstm(x)
        return self.head(F.relu(self.out(hidden + 1)))[:, 0, :]
