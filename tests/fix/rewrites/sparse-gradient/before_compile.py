# hot `loss.backward()` 0.3; hot `optimizer.step()` 0.4
import torch
from torch import nn


class Clicks(nn.Module):
    def __init__(self):
        super().__init__()
        self.users = nn.Embedding(200_000, 16)
        self.items = nn.Embedding(50_000, 16, sparse=False)

    def forward(self, user, item):
        return (self.users(user) * self.items(item)).sum(1)


class Trainer:
    """As another framework names it."""

    def compile(self, rate):
        self.optimizer = torch.optim.SGD(model.parameters(), lr=rate)
        return self.optimizer


model = Clicks()
optimizer = Trainer().compile(0.5)
for step in range(50):
    user, item = torch.randint(0, 200_000, (64,)), torch.randint(0, 50_000, (64,))
    optimizer.zero_grad()
    loss = nn.functional.binary_cross_entropy_with_logits(model(user, item), torch.rand(64))
    loss.backward()
    optimizer.step()
