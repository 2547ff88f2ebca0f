# hot `scores = self.head` 0.3 -> nothing
import torch
from torch import nn


class Next(nn.Module):
    def __init__(self):
        super().__init__()
        self.items = nn.Embedding(5000, 32)
        self.gru = nn.GRU(32, 64, batch_first=True)
        self.norm = nn.LayerNorm(64)
        self.head = nn.Linear(64, 5000)

    def forward(self, clicks):
        hidden, _ = self.gru(self.items(clicks))
        scores = self.head(self.norm(hidden))
        return scores[:, -3:]


model = Next()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(50):
    clicks = torch.randint(0, 5000, (32, 21))
    loss = nn.functional.cross_entropy(model(clicks[:, :-1]), clicks[:, -1])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
