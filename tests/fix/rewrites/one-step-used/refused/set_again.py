# hot `return self.head` 0.3 -> nothing
import torch
from torch import nn


class Next(nn.Module):
    def __init__(self, wide):
        super().__init__()
        self.lstm = nn.LSTM(32, 64, batch_first=True)
        self.head = nn.Linear(64, 5000)
        if wide:
            self.head = nn.Conv1d(64, 5000, 3)

    def forward(self, x):
        hidden, _ = self.lstm(x)
        return self.head(hidden)[:, -1]
