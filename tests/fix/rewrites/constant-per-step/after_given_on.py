# hot `norm = scaled` 0.5
import torch
from torch import nn

adj = torch.rand(400, 400)
adj.fill_diagonal_(0.0)
feat = torch.randn(400, 16)


def scaled(whole):
    d = whole.sum(dim=1).pow(-0.5)
    return d[:, None] * whole * d


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(16, 4)
        self._norm_of = self._norm = None

    def forward(self, adj, x):
        if self._norm_of is not adj:
            norm = scaled(adj + torch.eye(adj.size(0)))
            self._norm_of, self._norm = adj, norm
        norm = self._norm
        return norm @ self.lin(x)


model = Net()


def train(adj, x):
    model.train()
    optimizer.zero_grad()
    model(adj, x).square().mean().backward()
    optimizer.step()


optimizer = torch.optim.Adam(model.parameters())
for step in range(100):
    train(adj, feat)
print(model(adj, feat).sum())
